package jetstream

import (
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

const (
	// newInterest is how long news of a subscription may take from a client that is far away.
	newInterest = 2 * time.Second
	// listenPause is how often a pull without heartbeats checks whether anybody listens.
	listenPause = 5 * time.Second
)

// inbox is where the messages of a pull go.
type inbox struct {
	out      sender
	subject  string // the client subscribes to it
	gateway  string // used instead at first, if the pull came through a gateway
	hidden   bool   // the server does not tell who subscribes to subject
	seen     bool   // a subscription was seen; for calls of the Replier
	received time.Time
}

// inboxOf returns the inbox of a pull with that reply subject.
func inboxOf(reply string, out sender) inbox {
	subject, via := withoutGateway(reply)
	b := inbox{out: out, subject: subject, received: time.Now()}
	b.hidden = via || wire.Imported(subject)
	b.seen = out.HasInterest(subject)
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

// listens reports whether somebody may receive a message.
func (b *inbox) listens(now time.Time) bool {
	if b.hidden || b.out.HasInterest(b.subject) {
		b.seen = true
		return true
	}
	return !b.seen && now.Sub(b.received) <= newInterest
}

// beat sends a heartbeat after so many deliveries.
func (b *inbox) beat(now time.Time, delivered uint64) {
	number := strconv.FormatUint(delivered, 10)
	header := statusHeader(100, "Idle Heartbeat",
		"Nats-Last-Consumer", number, "Nats-Last-Stream", number)
	_ = b.out.Publish(&leaf.Message{Subject: b.to(now), Header: header}) // the next one may succeed
}
