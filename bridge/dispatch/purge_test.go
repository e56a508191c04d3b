package dispatch

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// What is pushed after a purge stays, also where nobody waits for its reply in between, and what was
// popped before it is no part of it.
func TestPurgeKeepsItsPlace(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		purge := fdbpq.Op{Kind: fdbpq.OpPurge, Queue: w.q.Target}
		w.push("a")
		w.n = 100
		w.submitTogether([][]fdbpq.Op{
			{pop(w.q)}, {push(w.q, "b")}, {purge}, {purge}, {push(w.q, "c")}, {pop(w.q)}, {pop(w.q)},
		}, never)
		w.want("in order", "101: a", "106: c", "107: empty")
	})
}
