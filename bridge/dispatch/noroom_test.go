package dispatch

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// submitTogether submits requests that all come into the next batch.
func (w *waiting) submitTogether(ops []fdbpq.Op, wait func(i int) *Wait) {
	w.t.Helper()
	l := w.d.lanes[0]
	l.popSize.Store(100) // as after small items
	l.mu.Lock()
	for i := range ops {
		w.n++
		w.log.submitted(w.n)
		w.d.load.hold(0)
		r := &Request{Queue: w.q, Replier: w.log, Number: w.n, Received: time.Now(), Reply: "reply", Wait: wait(i)}
		if r.Wait != nil {
			w.d.waiters.Add(1)
		}
		l.mu.backlog.push(r, ops[i:i+1])
	}
	l.mu.changed.Signal()
	l.mu.Unlock()
	synctest.Wait()
}

// One transaction has no room to lease, or give back, very many large items. Those that found no
// room get it in the next ones; nobody has to try again.
func TestRequestsThatFindNoRoom(t *testing.T) {
	const n, size = 150, 90_000
	never := func(int) *Wait { return nil }
	for _, waits := range []bool{false, true} {
		inBubble(t, nil, func(w *waiting) {
			for range n {
				w.push(strings.Repeat("x", size))
			}
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour}
			wait := never
			if waits { // so that the others queue up behind the first
				wait = func(i int) *Wait {
					if i == 0 {
						return w.minute()
					}
					return nil
				}
			}
			w.submitTogether(slices.Repeat([]fdbpq.Op{lease}, n), wait)
			for _, event := range w.log.take() {
				if len(event) < size {
					t.Fatalf("a lease, behind one that waits %t: %s", waits, event)
				}
			}
			var naks []fdbpq.Op
			for _, token := range w.log.mu.tokens {
				naks = append(naks, fdbpq.Op{Kind: fdbpq.OpNak, Queue: w.q.Target, Token: token})
			}
			w.submitTogether(naks, never)
			for _, event := range w.log.take() {
				if strings.Contains(event, "too large") {
					t.Fatalf("given back: %s", event)
				}
			}
		})
	}
}
