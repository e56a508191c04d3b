package bridge

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Each verb of the grammar has a row whose fields fit together.
func TestVerbs(t *testing.T) {
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		for _, v := range subjects.Verbs(kind) {
			if int(v) >= len(verbs) {
				t.Fatalf("%s has no row", v)
			}
			row := verbs[v]
			if row.op == 0 || (row.send == nil) == (row.sendAll == nil) {
				t.Errorf("%s: the row is not complete: %+v", v, row)
			}
			if row.needsReply != (row.op != fdbpq.OpPush && row.op != fdbpq.OpAck) {
				t.Errorf("%s: needs a reply: %t", v, row.needsReply)
			}
			if row.routed != (row.op == fdbpq.OpPop) {
				t.Errorf("%s: is routed: %t", v, row.routed)
			}
			if kind == subjects.FIFO && row.end != fdbpq.Front {
				t.Errorf("%s: a FIFO queue has no end other than its front", v)
			}
		}
	}
}
