package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// batch is operations on their way through one transaction. Its stages are
// lens, pushes, pops, peeks. Each stage begins the reads of all queues before
// it waits for the first, so a batch costs a few round trips to the store
// whatever its size.
type batch struct {
	tx      kv.Transaction
	now     time.Time
	ops     []Op
	results []Result
	queues  []*queueOps // in order of first use
	popped  []inQueue   // in the order of removal
	wrote   bool

	atLeast counts // of pushed items
	next    counts // that follow those of the pushed items
}

// counts is counts of items by the name of the queue and priority.
type counts map[string]map[int64]int64

// queueOps is the part of a batch that is for one queue: places in
// batch.ops, by kind.
type queueOps struct {
	l                              *layout
	lens, pushes, popMins, popMaxs []int
	peekMins, peekMaxs             []int
	pushed                         map[ID]struct{}
	deltas                         map[int64]int64 // changes of the numbers of items
	popReads                       [2]kv.Future[[]kv.KeyValue]
	returned                       bool // items of staged pops were put back
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
	for _, stage := range []func() error{b.lens, b.push, b.pop, b.peek} {
		if err := stage(); err != nil {
			return nil, err
		}
	}
	for _, q := range b.queues {
		q.count(tx)
	}
	return b, nil
}

// applyRead is apply for operations that only read.
func applyRead(r kv.Reader, ops []Op) ([]Result, error) {
	results := make([]Result, len(ops))
	for _, q := range group(ops, results) {
		if len(q.lens) > 0 {
			n, err := length(r, q.l)
			if err := answerLens(results, q.lens, n, err); err != nil {
				return nil, err
			}
		}
		for _, end := range q.peeks() {
			f, err := first(r, q.l, end.reverse)
			if err != nil {
				return nil, err
			}
			end.answer(results, f)
		}
	}
	return results, nil
}

// group sorts ops by queue. An operation that its queue does not have gets its
// error here.
func group(ops []Op, results []Result) []*queueOps {
	var queues []*queueOps
	byName := make(map[string]*queueOps, 1)
	for i := range ops {
		op := &ops[i]
		l := op.Queue.layout()
		q := byName[l.name]
		if q == nil {
			q = &queueOps{l: l}
			byName[l.name] = q
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
	case OpPopMin:
		q.popMins = append(q.popMins, i)
	case OpPopMax:
		q.popMaxs = append(q.popMaxs, i)
	case OpPeekMin:
		q.peekMins = append(q.peekMins, i)
	case OpPeekMax:
		q.peekMaxs = append(q.peekMaxs, i)
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

// lens reads the numbers of items. They are those before the batch, read
// without conflict, so that a len never makes a push wait for another.
func (b *batch) lens() error {
	for _, q := range b.queues {
		if len(q.lens) == 0 {
			continue
		}
		n, err := length(b.tx.Snapshot(), q.l)
		if err := answerLens(b.results, q.lens, n, err); err != nil {
			return err
		}
	}
	return nil
}

// peek serves the peeks, after the pushes and pops. It reads without conflict
// unless its answer follows from what this batch writes: such a peek takes
// place when the batch commits, so nothing may have come before it until then.
func (b *batch) peek() error {
	for _, q := range b.queues {
		for _, end := range q.peeks() {
			var r kv.Reader = b.tx
			if len(q.popMins)+len(q.popMaxs) == 0 {
				r = b.tx.Snapshot()
			}
			f, err := first(r, q.l, end.reverse)
			if err != nil {
				return err
			}
			if f != nil {
				if _, own := q.pushed[f.item.ID]; own {
					b.tx.AddReadConflict(q.l.before(f.pair.Key, end.reverse))
				}
			}
			end.answer(b.results, f)
		}
	}
	return nil
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
