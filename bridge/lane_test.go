package bridge

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

func newTestLane(t *testing.T) *lane {
	t.Helper()
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		t.Fatal(err)
	}
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	db := memkv.New(memkv.Options{})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := New(Options{
		DB: db, Keyspace: keyspace, Grammar: grammar, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.lanes[0]
}

// A lane that is closed goes on until its last batch is answered: that may turn
// out to have an unknown outcome, which only run settles.
func TestLaneOutlivesItsLastBatch(t *testing.T) {
	l := newTestLane(t)
	synctest.Test(t, func(t *testing.T) {
		l.mu.newest = &batch{}
		l.close()
		goesOn := make(chan bool, 1)
		go func() { goesOn <- l.wait() }()
		synctest.Wait()
		if len(goesOn) > 0 {
			t.Fatal("the lane ended with a batch under way")
		}
		l.setUnsettled()
		if !<-goesOn {
			t.Error("the lane ended with a batch of unknown outcome")
		}
		l.takeUnsettled()
		go func() { goesOn <- l.wait() }()
		synctest.Wait()
		l.finish(l.mu.newest)
		if <-goesOn {
			t.Error("the lane goes on with nothing to do")
		}
	})
}

// A lane that is never empty does not keep room for all that ever waited.
func TestLaneGivesUpWhatItTook(t *testing.T) {
	l := newTestLane(t)
	add := func(n int) {
		for range n {
			if err := l.add(&request{received: time.Now()}, &fdbpq.Op{Kind: fdbpq.OpPush}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const waiting = 2000
	add(waiting)
	for range 500 {
		add(l.b.options.MaxBatch)
		l.finish(l.take(t.Context()))
	}
	if n := len(l.mu.waiting) - l.mu.head; n != waiting || cap(l.mu.waiting) > 10*waiting {
		t.Errorf("%d requests wait, want %d, in room for %d", n, waiting, cap(l.mu.waiting))
	}
}
