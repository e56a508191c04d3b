package proof_test

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// asks reports whether the request is an acknowledgement that is answered if it counts.
func (p *pending) asks() bool { return p.op.JetStream && p.op.Kind == books.Ack && !p.silent }

// noteAnswer notes whether such an acknowledgement was answered. On a busy machine the answer may
// still come.
func (w *teller) noteAnswer(r *pending) {
	switch {
	case !r.asks():
	case r.op.Outcome == books.Done:
		w.answered.Add(1)
	case len(w.faults) == 0 && r.op.Outcome == books.Lost && r.intent.First():
		w.unanswered[r.number] = r.op
	}
}

// checkAnswers fails if an acknowledgement counted and was not answered, in a system in which
// nothing breaks. The others without an answer are of leases that were lost.
func (b *bank) checkAnswers() {
	late, lost, wrong := 0, 0, 0
	for _, w := range b.tellers {
		must(b.t, w.line.nc.FlushTimeout(patience)) // then all that the bridges said has arrived
		before := len(w.unanswered)

		for len(w.replies) > 0 {
			delete(w.unanswered, w.requestOf(<-w.replies))
		}

		late += before - len(w.unanswered)
		lost += len(w.unanswered)

		for _, op := range w.unanswered {
			if !b.books.Acknowledged(&op) {
				continue
			}
			if wrong++; wrong == 1 {
				b.t.Errorf(
					"counted, and was not answered: the acknowledgement of %q in %s, sent at "+
						"%v\nmake a similar run: %s",
					op.Value,
					op.Queue,
					time.Duration(op.Call),
					b.again(),
				)
			}
		}
	}

	b.t.Logf(
		"acknowledgements as JetStream: %d answered, %d answered later, %d not; %d of these "+
			"counted",
		b.answered.Load(),
		late,
		lost,
		wrong,
	)
}
