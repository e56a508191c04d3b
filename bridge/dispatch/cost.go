package dispatch

import (
	"cmp"
	"errors"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// opOverhead is roughly how many bytes an operation adds to a transaction.
const opOverhead = 256

// sweepBytes is roughly how many bytes the sweeps of a batch add to a transaction.
const sweepBytes = 1 << 20

// sweepPage is how many queues the Sweeper sweeps at a time.
const sweepPage = 32

// expectedBytes estimates the bytes that the request adds to a transaction.
func (l *lane) expectedBytes(r *Request, ops []fdbpq.Op) int {
	bytes := r.Size + opOverhead*len(ops)
	if r.Pops > 1 {
		bytes += (r.Pops - 1) * l.popCost(r.Queue)
	}

	for i := range ops {
		switch kind := ops[i].Kind; {
		case movesItem(kind):
			bytes += l.itemSize(r.Queue)
		case kind == fdbpq.OpSweep: // those of a batch share their room
			bytes += sweepBytes / sweepPage
		}
	}
	return bytes
}

// popCost is about how many bytes a pop adds to a transaction.
func (l *lane) popCost(q *Queue) int { return l.itemSize(q) + opOverhead }

// itemSize is the expected size of an item that is popped or peeked.
func (l *lane) itemSize(q *Queue) int {
	return int(cmp.Or(q.itemSize.Load(), l.popSize.Load()))
}

// observeResults learns from a batch how large items are, and which queues ran out of them, and counts
// what came and went.
func (l *lane) observeResults(b *batch, results []fdbpq.Result) {
	largest, items := 0, false
	var moved traffic
	for r, ops := range b.each() {
		own := results[:len(ops)]
		results = results[len(ops):]
		moved.count(r.Queue, ops, own)
		if last := len(ops) - 1; takesItem(ops[last].Kind) {
			if out := foundNothing(own[last].Err); out != r.Queue.ranOut.Load() {
				r.Queue.ranOut.Store(out)
			}
		}

		most, some := largestItem(r, ops, own)
		if some || r.Queue.itemSize.Load() > 0 {
			observeSize(&r.Queue.itemSize, most, some)
		}
		largest, items = max(largest, most), items || some
	}
	moved.flush()
	observeSize(&l.popSize, largest, items)
}

// foundNothing reports whether a pop or lease failed because there was nothing for it.
func foundNothing(err error) bool {
	return err != nil && (errors.Is(err, fdbpq.ErrEmpty) || errors.Is(err, fdbpq.ErrMaxLeased))
}

// largestItem returns the size of the largest item that a request has pushed or got, and whether it
// got any.
func largestItem(r *Request, ops []fdbpq.Op, results []fdbpq.Result) (size int, got bool) {
	if len(ops) == 1 {
		size = r.Size
	}
	for i := range results {
		if results[i].Err == nil && returnsItem(ops[i].Kind) {
			got = true
			size = max(size, sizeOf(&results[i].Item.Message))
		} else if len(ops) > 1 { // the request is larger than each of its pushes
			size = max(size, sizeOf(&ops[i].Message))
		}
	}
	return size, got
}

// observeSize adjusts the expected size of an item: up to the largest message at once, down
// slowly. So a batch has no more pops than there is room for: see fdbpq.Batcher.LimitReturned.
func observeSize(expected *atomic.Int64, largest int, items bool) {
	size := expected.Load()
	if int64(largest) > size {
		expected.Store(int64(largest))
	} else if items {
		expected.Store(size - (size-int64(largest)+7)/8)
	}
}

// traffic counts items of one queue for as long as a batch goes on with it, so that the counters that
// batches share change once and not for each request.
type traffic struct {
	queue   *Queue
	in, out int64
}

// count counts the results of a request.
func (t *traffic) count(q *Queue, ops []fdbpq.Op, results []fdbpq.Result) {
	if t.queue != q {
		t.flush()
		t.queue = q
	}
	for i := range ops {
		if r := &results[i]; r.Err == nil && !r.Duplicate {
			in, out := itemsMoved(&ops[i], r)
			t.in += in
			t.out += out
		}
	}
}

// flush adds what was counted to the counters of the queue.
func (t *traffic) flush() {
	if t.in > 0 {
		t.queue.in.Add(t.in)
	}
	if t.out > 0 {
		t.queue.out.Add(t.out)
	}
	*t = traffic{}
}

// itemsMoved returns how many items came into the queue and left it by an operation that succeeded.
func itemsMoved(op *fdbpq.Op, r *fdbpq.Result) (in, out int64) {
	switch op.Kind {
	case fdbpq.OpPush:
		return 1, 0
	case fdbpq.OpPop, fdbpq.OpAck, fdbpq.OpTerm, fdbpq.OpRemove, fdbpq.OpRedriveItem:
		return 0, 1
	case fdbpq.OpPurge:
		return 0, r.Len
	}
	return 0, 0
}
