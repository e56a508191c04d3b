package dispatch

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A purge that takes several transactions counts what each of them has done, also if a later one fails.
func TestTrafficOfPurges(t *testing.T) {
	var q Queue
	var moved traffic
	moved.note(&q, []fdbpq.Op{{Kind: fdbpq.OpPurge}}, []fdbpq.Result{{Progress: fdbpq.Progress{Done: 10, Next: "x"}}})
	op := fdbpq.Op{Kind: fdbpq.OpPurge, Progress: fdbpq.Progress{Done: 10, Next: "x"}}
	moved.note(&q, []fdbpq.Op{op}, []fdbpq.Result{{Progress: fdbpq.Progress{Done: 25, Next: "y"}}})
	moved.flush()
	if out := q.out.Load(); out != 25 {
		t.Errorf("%d items went, want 25", out)
	}
}
