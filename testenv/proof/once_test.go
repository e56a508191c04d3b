package proof_test

import (
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// maxRepeats is how often a push whose outcome is unknown is repeated, at most.
const maxRepeats = 20

// undecided reports whether the request pushed with message ids, and may have happened.
func (p *pending) undecided() bool {
	return p.once && (p.op.Outcome == books.Unknown || p.op.Outcome == books.Lost)
}

// repeat sends pushes with message ids again until their outcomes are known: each has happened
// once, whether it was this time or before. The books find an item that is there twice, or not at
// all. What takes so long on a busy machine that the ids may be forgotten is left undecided.
func (w *teller) repeat(undecided []*pending, padding func(queue string) int) {
	for n := 0; n < maxRepeats && len(undecided) > 0; n++ {
		w.line.awaiting.Lock()
		w.await()
		w.line.awaiting.Unlock()

		undecided = slices.DeleteFunc(undecided, func(r *pending) bool {
			age := time.Since(w.bank.zero) - time.Duration(r.op.Call)
			return !r.undecided() || age > fdbpq.DefaultDuplicateWindow/2
		})

		again := make([]pending, len(undecided))
		for i, r := range undecided {
			again[i] = pending{op: r.op, once: true}
		}

		w.sendAll(again, padding, nothing, nothing)
		for i, r := range undecided {
			if again[i].op.Outcome == books.Done {
				again[i].op.Call = r.op.Call
				r.op = again[i].op
				w.tally.add("done when repeated", 1)
			}
		}
	}
}

// keyed returns a message with its unique key and, for a push that counts once, its value as the
// message id.
func (p *pending) keyed(m client.Message, value string) client.Message {
	if p.once {
		m = m.With(client.MsgID(value))
	}

	if p.op.Unique != "" {
		m = m.With(client.Unique(p.op.Unique))
	}

	return m
}
