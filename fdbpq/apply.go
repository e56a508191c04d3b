package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// batch is operations on their way through one transaction. Its stages are
// lens and pushes, pops, peeks. Each step of a stage first begins the reads of all
// queues and then waits for them, so a batch over many queues costs as many round
// trips to the store as the slowest of them alone.
type batch struct {
	tx      kv.Transaction
	now     time.Time
	ops     []Op
	results []Result
	queues  []*queueOps // in order of first use
	popped  []inQueue   // in the order of removal
	wrote   bool
	listed  []*layout // queues that the batch saw or put in the list of queues

	atLeast counts // of pushed items
	next    counts // that follow those of the pushed items
}

// counts is counts of items by the prefix of the queue and priority.
type counts map[string]map[int64]int64

// queueOps is the part of a batch that is for one queue, and what is read for it.
type queueOps struct {
	l            *layout
	lens, pushes []int // places in batch.ops
	pops, peeks  [2]endOps

	length kv.Future[[]byte]                  // for lens
	entry  kv.Future[[]byte]                  // for pushes: in the list of queues; nil if it need not be read
	last   map[int64]kv.Future[[]kv.KeyValue] // for pushes: last item, by priority

	pushed   map[ID]struct{}
	deltas   map[int64]int64 // changes of the numbers of items
	returned bool            // items of staged pops were put back
	unswept  error           // ErrCorrupt: why what staged pops left was not looked through
}

// endOps is the pops or the peeks of one end of a queue.
type endOps struct {
	places []int // in batch.ops
	read   kv.Future[[]kv.KeyValue]
	pairs  []kv.KeyValue // what read gave
	items  []found       // those of pairs
}

// inQueue is an item that was popped, and the queue that it was in.
type inQueue struct {
	l *layout
	*found
}

// apply runs ops in tx and returns the batch, with one result for each. Items
// get counts from atLeast on. The error is one of the store.
func apply(tx kv.Transaction, ops []Op, now time.Time, atLeast counts) (*batch, error) {
	b := &batch{tx: tx, now: now, ops: ops, results: make([]Result, len(ops)), atLeast: atLeast, next: counts{}}
	b.queues = group(ops, b.results)
	for _, stage := range []func() error{b.lenAndPush, b.pop, b.peek} {
		if err := stage(); err != nil {
			return nil, err
		}
	}
	for _, q := range b.queues {
		q.count(tx)
	}
	return b, nil
}

// group sorts ops by queue. An operation that its queue does not have gets its
// error here.
func group(ops []Op, results []Result) []*queueOps {
	var queues []*queueOps
	byName := make(map[string]*queueOps, 1)
	for i := range ops {
		op := &ops[i]
		l := op.Queue.layout()
		q := byName[l.prefix]
		if q == nil {
			q = &queueOps{l: l}
			byName[l.prefix] = q
			queues = append(queues, q)
		}
		if err := q.add(i, op); err != nil {
			results[i].Err = err
		}
	}
	return queues
}

var errFIFOEnd = fmt.Errorf("%w: a FIFO queue is read from its oldest end only", ErrOp)

func (q *queueOps) add(i int, op *Op) error {
	if q.l.fifo && (op.Kind == OpPopMax || op.Kind == OpPeekMax) {
		return errFIFOEnd
	}
	switch op.Kind {
	case OpLen:
		q.lens = append(q.lens, i)
	case OpPush:
		if size := op.Message.size(); size > MaxMessageSize {
			return fmt.Errorf("%w: value and headers are %d bytes: want at most %d", ErrMessageTooLarge, size, MaxMessageSize)
		}
		q.pushes = append(q.pushes, i)
	case OpPopMin, OpPopMax:
		end := &q.pops[op.Kind.end()]
		end.places = append(end.places, i)
	case OpPeekMin, OpPeekMax:
		end := &q.peeks[op.Kind.end()]
		end.places = append(end.places, i)
	default:
		return fmt.Errorf("%w: there is no operation %d", ErrOp, op.Kind)
	}
	return nil
}

// changed notes that the number of items changed. Items of other programs are
// not counted.
func (q *queueOps) changed(id *ID, delta int64) {
	if !id.ours() {
		return
	}
	if q.deltas == nil {
		q.deltas = make(map[int64]int64)
	}
	q.deltas[id.Priority] += delta
}

// lenAndPush serves the lens and the pushes. Both read without conflict, and
// before anything is written: the lens are the numbers of items before the batch.
func (b *batch) lenAndPush() error {
	snapshot := b.tx.Snapshot()
	for _, q := range b.queues {
		q.beginLen(snapshot)
		b.beginPush(q, snapshot)
	}
	for _, q := range b.queues {
		if err := q.answerLen(b.results); err != nil {
			return err
		}
		if err := b.push(q); err != nil {
			return err
		}
	}
	return nil
}

// peek serves the peeks, after the pushes and pops.
func (b *batch) peek() error {
	for _, q := range b.queues {
		q.beginPeeks(b.peekReader(q))
	}
	for _, q := range b.queues {
		if err := q.findPeeks(b.peekReader(q)); err != nil {
			return err
		}
	}
	for _, q := range b.queues {
		b.guardPeeks(q)
		if err := q.answerPeeks(b.results); err != nil {
			return err
		}
	}
	return nil
}

// peekReader is without conflict unless the answer follows from what this batch
// removes: such a peek takes place when the batch commits, so nothing may have
// come before its item until then.
func (b *batch) peekReader(q *queueOps) kv.Reader {
	if len(q.pops[frontEnd].places)+len(q.pops[backEnd].places) > 0 {
		return b.tx
	}
	return b.tx.Snapshot()
}

// guardPeeks does the same for peeks that found what this batch pushes.
func (b *batch) guardPeeks(q *queueOps) {
	for end := range q.peeks {
		for i := range q.peeks[end].items {
			f := &q.peeks[end].items[i]
			if _, own := q.pushed[f.item.ID]; own {
				b.tx.AddReadConflict(q.l.before(f.pair.Key, end == backEnd))
			}
		}
	}
}

// before is the range of the keys that would be served before key, and key.
func (l *layout) before(key []byte, reverse bool) kv.Range {
	r := l.itemRange()
	if reverse {
		r.Begin = key
	} else {
		r.End = kv.SingleKey(key).End
	}
	return r
}

// count writes the changes of the numbers of items. Numbers that reach zero
// are removed, so that a queue with many priorities leaves nothing behind.
func (q *queueOps) count(tx kv.Transaction) {
	total := int64(0)
	for priority, delta := range q.deltas {
		total += delta
		if !q.l.fifo {
			addCount(tx, q.l.countKey(priority), delta)
		}
	}
	addCount(tx, q.l.totalKey(), total)
}

var zeroCount = make([]byte, 8)

func addCount(tx kv.Transaction, key []byte, delta int64) {
	if delta == 0 {
		return
	}
	tx.Add(key, delta)
	if delta < 0 {
		tx.CompareAndClear(key, zeroCount)
	}
}
