package peers

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Root is the start of the subjects between bridges.
const Root = "_pqbridge."

const (
	// AnnounceEvery is how often a bridge announces itself to all others, by Members.Beat.
	AnnounceEvery = time.Second
	// heartbeat is how often a bridge announces itself to its peers.
	heartbeat = 250 * time.Millisecond
	// After peerLife heartbeats, a silent peer is considered gone. They are this bridge's own
	// heartbeats, not time: a bridge that was frozen first reads what its peers sent meanwhile.
	peerLife = 5
)

// Config is what Peers need of their bridge, which makes it in newPeers (bridge/run.go). The
// functions are called from several goroutines.
type Config struct {
	// Self is the bridge.
	Self Self
	// Shared says that other bridges may use the store. Otherwise nothing is forwarded.
	Shared bool
	// Limits are the bridge's: MaxPending and MaxWaiters also limit the pops with one peer, and how
	// many of them wait for items.
	dispatch.Limits
	// Dispatcher runs the pops of this bridge.
	Dispatcher *dispatch.Dispatcher
	// OwnersChanged is told that queues may have another owner, or that the former one has gone or
	// a message was missed. It must not block.
	OwnersChanged func()

	// Conn returns the connection, nil before there is one. Online reports whether it is connected,
	// and Flush returns when NATS has received everything sent before.
	Conn   func() *nats.Conn
	Online func() bool
	Flush  func(ctx context.Context) error

	// Receive runs and answers a pop that a peer has forwarded. m is as the client sent it. The
	// bridge sets requests.Handler.Receive.
	Receive func(m *nats.Msg, o Origin)
	// Relay passes on to the client what a peer has answered to a pop that was forwarded to it. It
	// reports whether that was the end of the answer, and then whether part of it was lost. The
	// bridge sets requests.Relay.
	Relay func(r *dispatch.Request, m *nats.Msg) (ended, lost bool)
	// Settle is told what became of a message that this bridge had relayed by a peer, and
	// SettleRest of all to a subject except for these. The bridge sets methods of its Outbox.
	Settle     func(fate, token string)
	SettleRest func(fate, subject string, tokens []string)
	// Cancel ends a request that waits on this bridge; a peer says that its client has cancelled
	// it. The bridge sets requests.Waits.End.
	Cancel func(key string)
	// SourceChanged is told that a peer has changed the source of a queue. The bridge sets
	// Sources.Tell.
	SourceChanged func(queue fdbpq.QueueName)
	// ResultWaits is how many requests wait here for outcomes of jobs. Told has those look that
	// wait for jobs which have ended on a peer, and LookAll all, because something was missed. The
	// bridge sets the methods of its results.Waits.
	ResultWaits func() int
	Told        func(jobs []fdbpq.QueueJob)
	LookAll     func()
	// Forwarded counts a pop that was forwarded.
	Forwarded func()

	// Logger logs what comes rarely. Warn logs, but no flood.
	Logger *slog.Logger
	Warn   func(message string, args ...any)
}

// Self is what a bridge tells others about itself.
type Self struct {
	ID        string    `json:"id"`
	Group     string    `json:"group"`               // the queue group
	Subjects  []string  `json:"subjects"`            // wildcards
	Exclusive bool      `json:"exclusive,omitempty"` // only one process can use the store
	Location  string    `json:"location"`            // of the store, for people
	Started   time.Time `json:"started"`
}
