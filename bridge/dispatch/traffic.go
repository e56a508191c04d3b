package dispatch

import (
	"cmp"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// traffic counts items of one queue for as long as a batch goes on with it, so that the counters that
// batches share change once and not for each request.
type traffic struct {
	queue   *Queue
	in, out int64
}

// note counts the results of a request.
func (t *traffic) note(q *Queue, ops []fdbpq.Op, results []fdbpq.Result) {
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

// Traffic returns how many items came into and left the queues in use by requests, of up to n of the
// queues where it was most.
func (d *Dispatcher) Traffic(n int) []subjects.QueueTraffic {
	all := []subjects.QueueTraffic{}
	for i := range d.queues.shards {
		s := &d.queues.shards[i]
		s.RLock()
		for _, q := range s.queues {
			if in, out := q.in.Load(), q.out.Load(); in+out > 0 {
				all = append(all, subjects.QueueTraffic{Kind: q.Kind.Short(), Queue: q.Name, In: in, Out: out})
			}
		}
		s.RUnlock()
	}

	slices.SortFunc(all, func(a, b subjects.QueueTraffic) int {
		return cmp.Or(cmp.Compare(b.In+b.Out, a.In+a.Out), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Queue, b.Queue))
	})
	return all[:min(n, len(all))]
}
