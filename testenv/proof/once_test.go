package proof_test

import (
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// maxRepeats is how often a push whose outcome is unknown is repeated, at most.
const maxRepeats = 20

// undecided reports whether the request pushed with message ids, and may have happened.
func (p *pending) undecided() bool {
	return p.once && (p.op.Outcome == proof.Unknown || p.op.Outcome == proof.Lost)
}

// repeat sends a push with message ids again until its outcome is known: it has happened once, whether it was this
// time or before. The books find an item that is there twice, or not at all.
func (w *teller) repeat(r *pending, padding func() int) {
	nothing := func(*pending) {}
	for n := 0; n < maxRepeats && r.undecided(); n++ {
		w.line.awaiting.Lock()
		w.await()
		w.line.awaiting.Unlock()
		again := []pending{{op: r.op, once: true}}
		w.sendAll(again, padding, nothing, nothing)
		if again[0].op.Outcome == proof.Done {
			again[0].op.Call = r.op.Call
			r.op = again[0].op
			w.outcomes["done when repeated"]++
		}
	}
}

// keyed returns a message with its value as its message id, if the push is to be done once, and with its unique key.
func (p *pending) keyed(m client.Message, value string) client.Message {
	if p.once {
		m = m.With(client.MsgID(value))
	}
	if p.op.Unique != "" {
		m = m.With(client.Unique(p.op.Unique))
	}
	return m
}
