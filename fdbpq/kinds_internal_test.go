package fdbpq

import (
	"errors"
	"testing"
)

// Every kind of operation has a row in the table, and runs with its family. Any other number is no
// operation.
func TestKindsAreComplete(t *testing.T) {
	for n := range 1 << 8 {
		op := Op{Kind: OpKind(n)}
		family := families[kinds[op.Kind].family]

		known := OpPush <= op.Kind && op.Kind <= OpSetSource
		if known != (kinds[op.Kind].family != noFamily) || known != runs(op) {
			t.Errorf("kind %d: known %v, row %+v", n, known, kinds[op.Kind])
		}

		err := family.check(&op, fuzzLayout(false, RawValues))
		if !known && !errors.Is(err, ErrOp) {
			t.Errorf("kind %d: error %v, want ErrOp", n, err)
		}
	}
}

// runs reports whether a transaction has the operation in one of the families that it runs.
func runs(op Op) bool {
	t := &txOps{txn: txn{ops: []Op{op}}}
	t.add(&queueOps{}, 0)
	changes := len(t.pushes) + len(t.pops) + len(t.settlements) + len(t.restores) + len(t.edits) +
		len(t.sweeps)
	looks := len(t.looks) + len(t.infos) + len(t.inspections) + len(t.peeks)
	return changes+looks+len(t.configs)+len(t.records) == 1
}

// Traits agree with each other: what only reads changes nothing, and what takes an item returns it.
func TestTraitsAgree(t *testing.T) {
	for n := range 1 << 8 {
		k := OpKind(n)
		changes := TakesItem | FillsQueue | FallsDue | EndsLease | Grows
		if k.Has(changes) && !k.Writes() {
			t.Errorf("kind %d changes the queue and does not write", n)
		}
		if k.Has(TakesItem) && !k.Has(ReturnsItem) || k.Has(ReturnsItem) && !k.Has(MovesItem) {
			t.Errorf("kind %d: traits %b", n, kinds[k].traits)
		}
	}
}
