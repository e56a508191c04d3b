package outbox

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Config is what an Outbox needs of its bridge. The functions are called from several goroutines.
type Config struct {
	// ID names the bridge in the reply subjects of items.
	ID string
	// Conn returns the connection that replies go over.
	Conn func() *nats.Conn
	// Dispatcher takes back what nobody received. It does not end while a reply is unconfirmed.
	Dispatcher *dispatch.Dispatcher
	// MaxBytes is at how many bytes the oldest replies are deleted, confirmed or not.
	MaxBytes int
	// Patience is how long NATS may take for one exchange.
	Patience time.Duration
	// Stopping reports whether the bridge is shutting down.
	Stopping func() bool

	// Relays reports whether another bridge passes on messages to a subject. Tell says to other
	// bridges what became of messages that they sent through this one: see Content.Relayed.
	Relays func(subject string) bool
	Tell   func(fate string, tokens ...string)

	// Failed counts a reply that NATS did not accept, and Stray handles a message that somebody
	// sent to the reply subject of an item.
	Failed func(err error)
	Stray  func(m *nats.Msg)
	// Returned counts an item that went back or whose lease ended, and Lost items that could not go
	// back.
	Returned func(why Reason)
	Lost     func(items int)

	// Logger logs what comes rarely. WarnLost logs that items may be lost, and suppresses floods.
	Logger   *slog.Logger
	WarnLost func(message string, args ...any)
}

// Reason is why nobody received an item. It is a label of a metric.
type Reason string

// The reasons.
const (
	Gone       Reason = "no_responders" // nobody was subscribed to the reply subject
	Denied     Reason = "denied"        // NATS does not permit the reply
	Unsendable Reason = "unsendable"    // the reply could not be handed to NATS
	Late       Reason = "late"          // it took so long that the request or its lease was over
)

// Reasons returns all of them.
func Reasons() []Reason { return []Reason{Gone, Denied, Unsendable, Late} }

// Content is what a reply carries. If nobody receives it, the items go back into their queue, the
// leases end, and so does a request that waits.
type Content struct {
	// Queue has the items; nil if there are none, or they stay in it.
	Queue *dispatch.Queue
	// Popped are items that were popped, and Leased are leases.
	Popped []fdbpq.Item
	Leased []fdbpq.Lease
	// Waits is the request, if it may wait on after this reply.
	Waits dispatch.WaitHandle
	// Relayed, unless empty, is the reply subject of a message from another bridge, which has all
	// of that.
	Relayed string
}
