package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueEdits is the removes, moves, releases, redrives and purges of one queue, which run in their
// order. They see what the operations with tokens have done, and run before the pops.
type queueEdits struct {
	familyOps
	reads  map[int]*editRead // by index, while they are needed
	stale  map[ID]bool       // places that this transaction has changed since they were read
	purged bool              // all of them are gone since they were read
}

// editRead is what an operation on one item reads.
type editRead struct {
	state.IDLookup
	rest state.ItemRead // what else belongs to the item
}

// beginReads starts the reads of an operation.
func (q *queueEdits) beginReads(i int) {
	op := &q.ops[i]
	if op.Kind != OpPurge {
		q.reads[i] = &editRead{}
		q.readItem(i, &op.ID)
	}
	if op.Kind == OpMove {
		q.outgoing.To(q.l, op.Priority)
	}
}

// readItem starts to read the item of an operation at a place, with conflict.
func (q *queueEdits) readItem(i int, place *ID) {
	read := q.reads[i]
	read.Begin(place, q.ledger.LookUp(place))
	read.rest = state.BeginItem(q.l, q.tx, place, state.Beginning)
}

// beginAlias starts to read the alias of an item that is not at its place, with conflict.
func (q *queueEdits) beginAlias(i int) {
	if read := q.reads[i]; read != nil {
		read.BeginAlias(q.tx, q.l)
	}
}

// follow starts to read an item with an alias at the place that it names.
func (q *queueEdits) follow(i int) {
	if read := q.reads[i]; read != nil && read.Follow() {
		q.readItem(i, &read.Place)
	}
}

// readAgain reads the item of an operation as the transaction has left it.
func (q *queueEdits) readAgain(i int) {
	q.readItem(i, &q.ops[i].ID)
	q.beginAlias(i)
	q.follow(i)
}

// find returns the item of an operation.
func (q *queueEdits) find(i int) (*codec.Record, error) {
	op := &q.ops[i]
	read := q.reads[i]
	if q.purged || q.stale[read.Place] {
		q.readAgain(i)
	}
	h, err := read.Find()
	if h == nil && err == nil && q.outgoing.Fills(q.l) { // it may have come in between
		q.readAgain(i)
		h, err = read.Find()
	}
	if err != nil {
		return nil, err
	}
	if h == nil || op.misses(&h.ID) || op.State != AnyState && op.State != h.State {
		return nil, notFound(&op.ID)
	}

	if h.State == Ready {
		past, err := read.Past()
		if err != nil {
			return nil, err
		}
		h.History = state.RecordOf(&h.ID, past).History
		if h.Lasting, err = read.rest.Lasting(); err != nil {
			return nil, err
		}
	}
	if h.Gone(q.now) {
		return nil, notFound(&op.ID)
	}
	q.ledger.ReuseMeta(&read.rest)
	return h, q.ledger.Understands(h)
}

// named is the item of an operation as its result names it: its place, and the id of its job.
func (q *queueEdits) named(i int, place *ID) (Item, error) {
	if !codec.Moved(place) {
		return namedItem(place, nil), nil
	}
	rest := &q.reads[i].rest
	err := rest.ReadHeaders(q.tx, q.l)
	return namedItem(place, rest.Item.First), err
}

// namedItem is an item with nothing but its place and the id of its job.
func namedItem(place, first *ID) Item {
	return Item{ID: *place, Message: Message{First: first}, PushedAt: codec.PushedAt(place)}
}
