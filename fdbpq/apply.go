package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// batch is operations on their way through one transaction. Its stages are
// lens, pushes, pops, peeks. Each stage begins the reads of all queues before
// it waits for the first, so a batch costs a few round trips to the store
// whatever its size.
type batch struct {
	tx      kv.Transaction
	now     time.Time
	fresh   bool // see apply
	ops     []Op
	results []Result
	queues  []*queueOps // in order of first use
	wrote   bool
}

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

// apply runs ops in tx and returns one result for each, and whether anything
// was written. fresh says that nothing was written in tx before, so that what
// it reads is committed. The error is one of the store.
func apply(tx kv.Transaction, ops []Op, now time.Time, fresh bool) (results []Result, wrote bool, err error) {
	b := &batch{tx: tx, now: now, fresh: fresh, ops: ops, results: make([]Result, len(ops))}
	b.queues = group(ops, b.results)
	for _, stage := range []func() error{b.lens, b.push, b.pop, b.peek} {
		if err := stage(); err != nil {
			return nil, false, err
		}
	}
	for _, q := range b.queues {
		q.count(tx)
	}
	return b.results, b.wrote, nil
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

// pushReads is what a queue's pushes need to know.
type pushReads struct {
	q          *queueOps
	last       map[int64]kv.Future[[]kv.KeyValue] // last item, by priority
	registered kv.Future[[]byte]                  // nil if the queue need not be listed
}

func (b *batch) push() error {
	var reads []pushReads
	for _, q := range b.queues {
		if len(q.pushes) > 0 {
			reads = append(reads, b.readForPush(q))
		}
	}
	for _, r := range reads {
		if err := b.pushTo(r); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) readForPush(q *queueOps) pushReads {
	snapshot := b.tx.Snapshot() // pushes never conflict with pushes
	r := pushReads{q: q, last: make(map[int64]kv.Future[[]kv.KeyValue])}
	if q.l.registered != nil && !q.l.listed.Load() {
		r.registered = snapshot.Get(q.l.registered)
	}
	for _, i := range q.pushes {
		p := q.priority(&b.ops[i])
		if _, ok := r.last[p]; !ok {
			r.last[p] = snapshot.GetRange(q.l.priorityRange(p), kv.RangeOptions{Limit: 1, Reverse: true})
		}
	}
	return r
}

// priority is the priority an op of this queue has: none in a FIFO queue.
func (q *queueOps) priority(op *Op) int64 {
	if q.l.fifo {
		return 0
	}
	return op.Priority
}

func (b *batch) pushTo(r pushReads) error {
	q := r.q
	if r.registered != nil {
		since, err := r.registered.Get()
		if err != nil {
			return err
		}
		if since == nil {
			b.tx.Set(q.l.registered, tuple.Tuple{b.now.UnixMicro()}.Pack())
		} else if b.fresh && listedLongAgo(since, b.now) {
			q.l.listed.Store(true)
		}
	}
	next := make(map[int64]int64, len(r.last))
	for p, future := range r.last {
		count, err := q.l.nextCount(future)
		if err != nil {
			return failed(b.results, q.pushes, err)
		}
		next[p] = count
	}
	unique := uniqueBytes(len(q.pushes))
	q.pushed = make(map[ID]struct{}, len(q.pushes))
	for n, i := range q.pushes {
		op := &b.ops[i]
		p := q.priority(op)
		id := newID(p, next[p], b.now, unique[n*uniqueSize:][:uniqueSize], q.l.needsMeta(&op.Message))
		next[p] = following(next[p])
		q.l.put(b.tx, &id, &op.Message)
		q.pushed[id] = struct{}{}
		q.changed(&id, 1)
		b.results[i].Item = Item{ID: id, PushedAt: id.pushedAt()}
	}
	b.wrote = true
	return nil
}

// listedLongAgo reports whether a queue has been in the list for so long that
// nothing can take it from there any more, not even a disk that fails now.
func listedLongAgo(since []byte, now time.Time) bool {
	micros, _, err := tuple.DecodeInt(since)
	return err == nil && now.Sub(time.UnixMicro(micros)) > 5*time.Second
}

// nextCount returns the count after that of the last item found.
func (l *layout) nextCount(last kv.Future[[]kv.KeyValue]) (int64, error) {
	pairs, err := last.Get()
	if err != nil {
		return 0, err
	}
	if len(pairs) == 0 {
		return l.firstCount(), nil
	}
	id, err := l.parseItem(pairs[0].Key)
	if err != nil {
		return 0, err
	}
	return following(id.Count), nil
}

// following is count + 1; at the end of int64, which only another program can
// have reached, it stays there and the time in the id orders the items.
func following(count int64) int64 { return max(count, count+1) }

// pop serves the pops of both ends. Both ends are read before anything is
// removed: if they overlap, the front takes first.
func (b *batch) pop() error {
	for _, q := range b.queues {
		for end, want := range [2]int{len(q.popMins), len(q.popMaxs)} {
			if want > 0 {
				q.popReads[end] = b.readEnd(q, end, want)
			}
		}
	}
	for _, q := range b.queues {
		var taken map[string]struct{} // by the front, if both ends are served
		if len(q.popMins) > 0 && len(q.popMaxs) > 0 {
			taken = make(map[string]struct{}, len(q.popMins))
		}
		for end, places := range [2][]int{q.popMins, q.popMaxs} {
			if len(places) == 0 {
				continue
			}
			pairs, err := b.popRead(q, end, len(places))
			if err != nil {
				if err := failed(b.results, places, err); err != nil {
					return err
				}
				continue
			}
			if err := b.popFrom(q, pairs, places, taken); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *batch) readEnd(q *queueOps, end, want int) kv.Future[[]kv.KeyValue] {
	return b.tx.GetRange(q.l.itemRange(), kv.RangeOptions{Limit: want, Reverse: end == 1})
}

// popRead waits for what was read for the pops of one end. A queue that has
// too few items may have some with staged pops whose owners are gone.
func (b *batch) popRead(q *queueOps, end, want int) ([]kv.KeyValue, error) {
	pairs, err := q.popReads[end].Get()
	if err != nil || len(pairs) == want {
		return pairs, err
	}
	returned, err := returnExpired(b.tx, q.l, b.now)
	q.returned = q.returned || returned
	if err != nil || !q.returned {
		return pairs, err
	}
	b.wrote = true
	return b.readEnd(q, end, want).Get()
}

// popFrom gives the items of pairs that are not taken yet to the pops at the
// given places, one each.
func (b *batch) popFrom(q *queueOps, pairs []kv.KeyValue, places []int, taken map[string]struct{}) error {
	items := make([]*found, 0, len(pairs))
	for _, pair := range pairs {
		if _, gone := taken[string(pair.Key)]; !gone {
			items = append(items, q.l.find(b.tx, pair))
		}
	}
	for n, i := range places {
		if n >= len(items) {
			b.results[i].Err = ErrEmpty
			continue
		}
		f := items[n]
		if err := f.wait(); err != nil {
			return err
		}
		if f.err != nil {
			// The item stays, and so do those behind it: an order with holes
			// would be no order.
			return failed(b.results, places[n:], f.err)
		}
		b.remove(q, f)
		if taken != nil {
			taken[string(f.key)] = struct{}{}
		}
		b.results[i].Item = f.item
	}
	return nil
}

func (b *batch) remove(q *queueOps, f *found) {
	b.tx.Clear(f.key)
	for _, part := range f.parts {
		b.tx.Clear(part.Key)
	}
	q.changed(&f.item.ID, -1)
	b.wrote = true
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
					b.tx.AddReadConflict(q.l.before(f.key, end.reverse))
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
