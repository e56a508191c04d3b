package jetstream

import (
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

const (
	// newInterest is how long it may take to hear of the subscription of a client that is far away.
	newInterest = 2 * time.Second
	// listenPause is how often a pull without heartbeats looks whether anybody listens.
	listenPause = 5 * time.Second
)

// inbox is where the messages of a pull go.
type inbox struct {
	out      sender
	subject  string // that the client subscribes to
	gateway  string // the subject to use at first instead, if the pull came through a gateway
	hidden   bool   // nothing tells whether anybody subscribes to the subject
	heard    bool   // somebody subscribes to it, or did; for calls of the Replier
	received time.Time
}

// inboxOf returns the inbox of a pull with that reply subject.
func inboxOf(reply string, out sender) inbox {
	subject, via := withoutGateway(reply)
	b := inbox{out: out, subject: subject, hidden: via || wire.Imported(subject), heard: out.HasInterest(subject), received: time.Now()}
	if via {
		b.gateway = reply
	}
	return b
}

// to is the subject to send to now.
func (b *inbox) to(now time.Time) string {
	if b.gateway != "" && now.Sub(b.received) < newInterest {
		return b.gateway
	}
	return b.subject
}

// deaf reports whether nobody would receive a message.
func (b *inbox) deaf(now time.Time) bool {
	if b.hidden || b.out.HasInterest(b.subject) {
		b.heard = true
		return false
	}
	return b.heard || now.Sub(b.received) > newInterest
}

// beat sends a heartbeat after that many deliveries.
func (b *inbox) beat(now time.Time, delivered uint64) {
	number := strconv.FormatUint(delivered, 10)
	header := statusHeader(100, "Idle Heartbeat", "Nats-Last-Consumer", number, "Nats-Last-Stream", number)
	_ = b.out.Publish(&leaf.Message{Subject: b.to(now), Header: header}) // the next one may succeed
}

// ending is the status that ends a pull, none if the code is 0.
type ending struct {
	code   int
	text   string
	counts bool // with what it did not get
}

var (
	// silent ends pulls that nobody hears, or that have all that they want.
	silent = &ending{}
	// errShutdown ends pulls when the bridge stops. Clients pull again, from another one.
	errShutdown = &ending{code: 409, text: "Server Shutdown"}
	// leaderChanged ends pulls that clients are to begin again at once.
	leaderChanged = &ending{code: 409, text: "Leadership Change"}
	deleted       = &ending{code: 409, text: "Consumer Deleted"}
	maxWaiting    = &ending{code: 409, text: "Exceeded MaxWaiting"}
	noMessages    = &ending{code: 404, text: "No Messages"}
	timeIsOver    = &ending{code: 408, text: "Request Timeout", counts: true}
	tooLarge      = &ending{code: 409, text: "Message Size Exceeds MaxBytes", counts: true}
	completed     = &ending{code: 409, text: "Batch Completed", counts: true}
)

// withoutGateway returns the inbox of a request, and whether it came through a gateway, which makes it
// "_GR_.<cluster>.<server>.<inbox>" for as long as it remembers that.
func withoutGateway(reply string) (inbox string, via bool) {
	if parts := strings.SplitN(reply, ".", 4); len(parts) == 4 && parts[0] == "_GR_" {
		return parts[3], true
	}
	return reply, false
}
