package peers

import (
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// bell tells the bridges on which pops wait that another one has made items available.
//
// Each queue has a subject below one wildcard, to which all bridges subscribe. A bridge that has
// made items available publishes there once they are durable, but only while a peer says in its
// heartbeats that pops wait on it: otherwise a push costs nothing. If a ring gets lost, the
// dispatcher finds the items when it next looks for items of programs that do not ring: see
// dispatch.Options.PollEvery.
//
// Nothing is missed when waiting begins. This bridge says "waits"; the peers begin to ring, and say
// "rings"; then all pops that wait here look once more for what came before.
type bell struct {
	p         *peering
	root      string      // of the subjects; set by Join
	waits     need        // of pops: peers have to ring
	peersWait atomic.Bool // a peer waits, so this bridge rings

	// The dispatcher's, except in tests.
	waiters func() int
	wakeAll func()
}

// need is set while something waits here, and peers have to tell about it.
type need struct {
	atomic.Bool
	quiet int // own heartbeats since something waited; only Router.run uses it
}

// needLife is how many heartbeats, 2 s, a need goes on after the last has waited, because the next
// one often follows soon.
const needLife = 8

// beat is called once per heartbeat.
func (n *need) beat(waits bool) {
	if waits {
		n.quiet = 0
		n.Store(true)
	} else if n.quiet++; n.quiet > needLife {
		n.Store(false)
	}
}

// hear has the pops of a queue look for items after a ring.
func (l *bell) hear(m *nats.Msg) {
	if string(m.Data) == l.p.config.Self.ID {
		return // the dispatcher knows
	}

	short, queue, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.root+"bell."), ".")
	kind, _ := subjects.ParseShort(short)
	if q := l.p.config.Dispatcher.Find(kind, queue); q != nil {
		l.p.config.Dispatcher.Wake(q)
	}
}
