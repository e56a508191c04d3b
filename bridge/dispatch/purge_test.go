package dispatch

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Items pushed after a purge stay, even if nobody waits for its reply in between, and items popped
// before it are no part of it.
func TestPurgeKeepsItsPlace(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		purge := fdbpq.Op{Kind: fdbpq.OpPurge, Queue: w.q.Target}
		w.push("a")
		w.n = 100

		w.submitTogether([][]fdbpq.Op{
			{pop(w.q)},
			{push(w.q, "b")},
			{purge},
			{purge},
			{push(w.q, "c")},
			{pop(w.q)},
			{pop(w.q)},
		}, never)
		w.want("in order", "101: a", "106: c", "107: empty")
	})
}
