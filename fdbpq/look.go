package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// looks is the lens, infos, OpGets and OpRanks. All read without conflict.
type looks struct {
	*txn
	queues []*queueLooks
	infos  []*infos

	unread []inspection // OpGets and OpRanks, in order
	begun  int          // of unread: they are being read
}

// queueLooks is those of one queue.
type queueLooks struct {
	*queueTxn
	lens   []int // into txn.ops
	length kv.Future[[]byte]
	infos  *infos // nil without infos
}

// inspection is an OpGet or OpRank.
type inspection interface {
	// beginReads starts to read, up to about that many bytes of items, unless there is no room.
	beginReads(bytes int)
	// finish sets the result. The error is one of the store.
	finish() error
}

// add adds an operation on a queue.
func (k *looks) add(q *queueLooks, i int) {
	switch op := &q.ops[i]; op.Kind {
	case OpLen:
		q.lens = append(q.lens, i)
	case OpInfo:
		join(&q.infos, &k.infos, func() *infos { return &infos{queueTxn: q.queueTxn} }).add(i, op.MaxPriorities)
	case OpGet:
		k.unread = append(k.unread, &get{queueTxn: q.queueTxn, index: i, id: op.ID})
	case OpRank:
		k.unread = append(k.unread, &rank{queueTxn: q.queueTxn, index: i, id: op.ID, end: op.End})
	}
}

func (k *looks) beginLens() {
	for _, q := range k.queues {
		if len(q.lens) > 0 {
			q.length = q.snapshot.Get(q.l.TotalKey())
		}
	}
}

// rereadLens starts to read again the lengths of queues whose counters were written meanwhile.
func (k *looks) rereadLens() {
	for _, q := range k.queues {
		if q.ledger.Wrote() && len(q.lens) > 0 {
			q.length = q.snapshot.Get(q.l.TotalKey())
		}
	}
}

func (k *looks) finishLens() error { return each(k.queues, (*queueLooks).finishLens) }

// finishLens sets the results of the lens.
func (q *queueLooks) finishLens() error {
	if len(q.lens) == 0 {
		return nil
	}
	value, err := q.length.Get()
	if err != nil {
		return err
	}

	n, err := state.ParseLength(value)
	if err != nil {
		return q.failOps(err, q.lens...)
	}
	for _, i := range q.lens {
		q.results[i].Len = n
	}
	return nil
}

// readItems runs the infos, OpGets and OpRanks.
func (k *looks) readItems() error {
	k.beginItems()
	return k.finishItems()
}

// beginItems starts the first reads of the infos, OpGets and OpRanks.
func (k *looks) beginItems() {
	for _, n := range k.infos {
		n.beginCounters()
	}
	k.inspectNext()
}

// finishItems sets the results of the infos, OpGets and OpRanks. The error is one of the store.
func (k *looks) finishItems() error {
	if err := each(k.infos, (*infos).finishCounters); err != nil {
		return err
	}
	// The first items of priorities are values, so those of all queues share the room.
	most := k.returned.AtOnce()
	for _, n := range k.infos {
		most -= n.beginFirsts(most)
	}
	if err := each(k.infos, (*infos).finish); err != nil {
		return err
	}

	for ; len(k.unread) > 0; k.unread, k.begun = k.unread[1:], k.begun-1 {
		if k.begun == 0 {
			k.inspectNext()
		}
		if err := k.unread[0].finish(); err != nil {
			return err
		}
		k.unread[0] = nil // it holds values
	}
	return nil
}

// inspectNext starts the reads of the next OpGets and OpRanks. They are read a few at a time: each
// takes up to three values to begin with.
func (k *looks) inspectNext() {
	k.begun = min(len(k.unread), (k.returned.AtOnce()+2)/3)
	share := k.returned.Share(1, k.begun)
	for _, one := range k.unread[:k.begun] {
		one.beginReads(share)
	}
}
