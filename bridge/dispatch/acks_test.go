package dispatch

import (
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// nextOf is a request that acknowledges leases together, in the order in which they were given, and leases n items.
func (w *waiting) nextOf(n int, leases ...int) (ops []fdbpq.Op) {
	for _, lease := range leases {
		ops = append(ops, w.settle(fdbpq.OpAck, lease))
	}
	ops = append(ops, pops(w.lease(), n)...)
	for i := range ops {
		ops[i].Follows = i > 0
	}
	return ops
}

// Of requests in one transaction that name the same lease, the first has it. The others change nothing, so the next one
// may have what they name besides.
func TestAcknowledgementsThatOverlap(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits %v", waits), func(t *testing.T) {
			withHeld(t, nil, func(w *waiting, db *heldDB) {
				for _, item := range []string{"a", "b", "c", "d", "e", "f"} {
					w.push(item)
				}
				w.submit(nil, pops(w.lease(), 4)...)
				w.want("four are leased", "7: a b c d")
				w.transactions()
				w.while(db, func() { // 8
					var wait *Wait
					if waits {
						wait = w.minute()
					}
					w.submit(wait, w.nextOf(1, 0, 1)...)
					w.submit(wait, w.nextOf(1, 1, 2)...)
					w.submit(wait, w.nextOf(1, 0, 3)...)
					w.submit(wait, w.nextOf(1, 2, 3)...)
				})
				w.want("in one transaction", "9:   e", "10: lost", "11: lost", "12:   f")
				if n := w.transactions(); n != 2 {
					t.Errorf("%d transactions, want one of another queue and one", n)
				}
				w.submit(nil, w.nextOf(1, 4, 5)...)
				w.want("the end", "13:   empty")
			})
		})
	}
}
