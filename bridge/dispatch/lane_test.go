package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// A closed lane continues until its last batch is answered, because that may have an
// unknown outcome, which only run settles.
func TestLaneOutlivesItsLastBatch(t *testing.T) {
	l := newTest(t).lanes[0]
	synctest.Test(t, func(t *testing.T) {
		l.mu.newest = &batch{}
		l.close()
		goesOn := make(chan bool, 1)
		go func() { goesOn <- l.awaitWork(t.Context()) }()
		synctest.Wait()
		if len(goesOn) > 0 {
			t.Fatal("the lane ended with a batch in flight")
		}
		l.setUnsettled(nil)
		if !<-goesOn {
			t.Error("the lane ended with a batch of unknown outcome")
		}
		l.takeUnsettled()
		go func() { goesOn <- l.awaitWork(t.Context()) }()
		synctest.Wait()
		l.finishBatch(l.mu.newest)
		if <-goesOn {
			t.Error("the lane still runs with nothing to do")
		}
	})
}

// A lane that is never empty does not keep memory for every request that ever waited.
func TestLaneDropsTakenRequests(t *testing.T) {
	d := newTest(t)
	l, q := d.lanes[0], getQueue(t, d.queues, subjects.Priority, "jobs")
	add := func(n int) {
		for range n {
			must(t, l.submit(&Request{Queue: q, Silent: true, Received: time.Now()}, []fdbpq.Op{{Kind: fdbpq.OpPush}}))
		}
	}
	const waiting = 2000
	add(waiting)
	for range 500 {
		add(l.d.options.MaxBatch)
		l.finishBatch(l.takeBatch(t.Context()))
	}
	w := &l.mu.backlog
	if w.len() != waiting || w.operations != waiting || cap(w.requests.items) > 10*waiting || cap(w.ops.items) > 10*waiting {
		t.Errorf("%d requests wait, want %d, in room for %d", w.len(), waiting, cap(w.requests.items))
	}
}

// After a batch of pushes, a lane expects items of the size of its largest item, not of the
// whole batch: otherwise the next pops would get transactions of their own.
func TestExpectedSizeAfterAPushOfSeveral(t *testing.T) {
	d := newTest(t)
	q := getQueue(t, d.queues, subjects.Priority, "jobs")
	stop := run(t, d)
	ops := make([]fdbpq.Op, 100)
	for i := range ops {
		ops[i] = push(q, "small")
		ops[i].Follows = i > 0
	}
	d.lanes[0].popSize.Store(0)
	if _, err := d.Do(t.Context(), q, ops); err != nil {
		t.Fatal(err)
	}
	stop()
	if size := d.lanes[0].popSize.Load(); size != int64(len("small")) {
		t.Errorf("items of %d bytes are expected", size)
	}
}
