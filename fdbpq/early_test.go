package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// slow is a store whose commits wait for the test. It records what happens.
type slow struct {
	kv.Database
	serial bool
	// release lets a commit continue. With an error, nothing is committed.
	release chan error

	mu     sync.Mutex
	events []string
}

func (s *slow) Traits() kv.Traits { return kv.Traits{Serial: s.serial} }

func (s *slow) note(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}

func (s *slow) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	s.note("begin")
	tx, err := s.Database.Begin(ctx, o)
	return slowTransaction{tx, s}, err
}

type slowTransaction struct {
	kv.Transaction
	slow *slow
}

func (tx slowTransaction) Commit() kv.Future[struct{}] {
	tx.slow.note("commit")
	return slowCommit{tx}
}

type slowCommit struct{ tx slowTransaction }

func (c slowCommit) Get() (struct{}, error) {
	if err := <-c.tx.slow.release; err != nil {
		c.tx.Transaction.Cancel()
		c.tx.slow.note(err.Error())
		return struct{}{}, err
	}
	_, err := c.tx.Transaction.Commit().Get()
	c.tx.slow.note("committed")
	return struct{}{}, err
}

// waiting returns what has happened once all goroutines wait.
func (s *slow) waiting() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

// onSlow runs a test in a synctest bubble, on a store that commits when told to.
func onSlow(t *testing.T, test func(t *testing.T, s *slow, k *fdbpq.Keyspace)) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Database: memkv.New(memkv.Options{}), release: make(chan error)}
		test(t, s, must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)))
		wantError(t, s.Close(), nil)
	})
}

// backwards is a clock that runs backwards, so that times give no order.
func backwards() func() time.Time {
	c := newClock(time.Now())
	c.stepping(-time.Second)
	return c.now
}

// pushed pops everything from the store behind s, and returns the values.
func pushed(t *testing.T, s *slow, q *fdbpq.PriorityQueue) (values []string) {
	t.Helper()
	for {
		item, err := kv.Transact(t.Context(), s.Database, q.PopMin)
		if errors.Is(err, fdbpq.ErrEmpty) {
			return values
		}
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(item.Value))
	}
}

// wantListed fails the test unless the queue is in the list of queues.
func wantListed(t *testing.T, s *slow, queue string) {
	t.Helper()
	value, err := kv.ReadTransact(t.Context(), s.Database, func(r kv.Reader) ([]byte, error) {
		return r.Get(tuple.Tuple{"pq-queues", queue}.Pack()).Get()
	})
	if err != nil || value == nil {
		t.Errorf("the queue is listed as %x, %v", value, err)
	}
}

// A batch of pushes reads while the one before it commits, and still comes after it.
func TestPushesReadWhileOthersCommit(t *testing.T) {
	onSlow(t, func(t *testing.T, s *slow, k *fdbpq.Keyspace) {
		b, q := fdbpq.NewBatcher(s, k), must(k.PriorityQueue("jobs"))
		b.SetNow(backwards())
		var last *fdbpq.Pending
		for i := range 4 {
			started := make(chan *fdbpq.Pending, 1)
			go func() {
				started <- b.Start(t.Context(), []fdbpq.Op{opPush(q, 1, fmt.Sprint(i)), opPush(q, 2, fmt.Sprint(i, "b"))})
			}()
			if i == 0 {
				wantList(t, "first", s.waiting(), "begin", "commit")
			} else {
				wantList(t, "meanwhile", s.waiting(), "begin")
				s.release <- nil
				wantList(t, "after the one before", s.waiting(), "committed", "commit")
				wantListed(t, s, "jobs")
			}
			last = <-started
		}
		done := make(chan error)
		go func() {
			_, err := last.Wait()
			done <- err
		}()
		s.release <- nil
		wantEqual(t, "error", <-done, nil)
		wantListed(t, s, "jobs")
		wantList(t, "items", pushed(t, s, q), "0", "1", "2", "3", "0b", "1b", "2b", "3b")
	})
}

// If the previous batch needs another attempt, it may get higher counts, and the next batch
// still comes after it.
func TestPushesAfterOnesTriedAgain(t *testing.T) {
	for _, lost := range []error{kv.ErrTooOld, kv.ErrThrottled, kv.ErrCommitUnknown} {
		onSlow(t, func(t *testing.T, s *slow, k *fdbpq.Keyspace) {
			b, q := fdbpq.NewBatcher(s, k), must(k.PriorityQueue("jobs"))
			b.SetNow(backwards())
			first := b.Start(t.Context(), []fdbpq.Op{opPush(q, 1, "first")})
			started := make(chan *fdbpq.Pending, 1)
			go func() { started <- b.Start(t.Context(), []fdbpq.Op{opPush(q, 1, "second")}) }()
			synctest.Wait()
			for i := range 3 {
				must(fdbpq.NewBatcher(s.Database, k).Apply(t.Context(), []fdbpq.Op{opPush(q, 1, fmt.Sprint("other ", i))}))
			}
			s.release <- lost
			s.release <- nil
			second := <-started
			go func() { s.release <- nil }()
			for _, p := range []*fdbpq.Pending{first, second} {
				must(p.Wait())
			}
			wantList(t, fmt.Sprint("items after ", lost), pushed(t, s, q), "other 0", "other 1", "other 2", "first", "second")
		})
	}
}

// The next batch does not depend on the outcome of one that was given up.
func TestPushesAfterAbandonedOnes(t *testing.T) {
	onSlow(t, func(t *testing.T, s *slow, k *fdbpq.Keyspace) {
		b, q := fdbpq.NewBatcher(s, k), must(k.PriorityQueue("jobs"))
		ctx, cancel := context.WithCancel(t.Context())
		first := b.Start(ctx, []fdbpq.Op{opPush(q, 1, "first")})
		started := make(chan *fdbpq.Pending, 1)
		go func() { started <- b.Start(t.Context(), []fdbpq.Op{opPush(q, 1, "second")}) }()
		synctest.Wait()
		cancel()
		s.release <- kv.ErrCommitUnknown
		s.release <- nil // settles the first
		second := <-started
		go func() { s.release <- nil }()
		must(second.Wait())
		wantError(t, errOf(first.Wait()), kv.ErrCommitUnknown)
		wantListed(t, s, "jobs") // though the first was to list it
		wantList(t, "items", pushed(t, s, q), "second")
	})
}

// Batches that may read more than counts, empty ones, and all batches of a serial engine, begin after the
// previous batch has ended.
func TestOtherBatchesWait(t *testing.T) {
	for _, c := range []struct {
		first, second fdbpq.Op
		serial        bool
	}{
		{opNoItem, opPopMin, false},
		{opNoItem, opLen, false},
		{opNoItem, opPeekMin, false},
		{opPopMin, opNoItem, false},
		{opPopMax, opPopMin, false},
		{opNoItem, opNoItem, true},
		{first: opNoItem}, // the second is empty
	} {
		onSlow(t, func(t *testing.T, s *slow, k *fdbpq.Keyspace) {
			s.serial = c.serial
			b, q := fdbpq.NewBatcher(s, k), must(k.PriorityQueue("jobs"))
			must(fdbpq.NewBatcher(s.Database, k).Apply(t.Context(), []fdbpq.Op{opPush(q, 1, "a"), opPush(q, 1, "b")}))
			first := b.Start(t.Context(), []fdbpq.Op{op(c.first, q)})
			var second []fdbpq.Op
			if c.second.Kind != 0 {
				second = []fdbpq.Op{op(c.second, q), op(c.second, q)}
			}
			done := make(chan error)
			go func() {
				_, err := b.Apply(t.Context(), second)
				done <- err
			}()
			what := fmt.Sprint(c)
			wantList(t, what, s.waiting(), "begin", "commit")
			s.release <- nil
			if !c.second.Kind.Writes() || second == nil { // which commit nothing
				wantEqual(t, what, <-done, nil)
				wantList(t, what, s.waiting(), "committed")
			} else {
				wantList(t, what, s.waiting(), "committed", "begin", "commit")
				s.release <- nil
				wantEqual(t, what, <-done, nil)
			}
			must(first.Wait())
		})
	}
}

// All pushes of several Batchers, some started before the previous batch has ended, are there
// exactly once, and those of one Batcher in the order they were started, whatever happens to
// the commits.
func TestPushesStayInOrder(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
	q := f.queue("a")
	const workers, batches = 4, 150
	var pushes atomic.Int64
	f.run(seed, workers, func(w *worker) {
		w.batcher.SetNow(backwards())
		var under []*fdbpq.Pending
		wait := func(n int) {
			for len(under) > n {
				wantError(f.T, errOf(under[0].Wait()), nil)
				under = under[1:]
			}
		}
		for range batches {
			var ops []fdbpq.Op
			for range 1 + w.random.IntN(4) {
				w.pushes++
				pushes.Add(1)
				ops = append(ops, opPush(q, int64(w.random.IntN(2)), fmt.Sprintf("%d %d", w.number, w.pushes)))
			}
			under = append(under, w.batcher.Start(f.ctx, ops))
			wait(w.random.IntN(3))
		}
		wait(0)
	})
	f.calm()
	last := map[[2]int64]int{}
	all := int64(0)
	for {
		item, err := f.take(q.PopMin)
		if errors.Is(err, fdbpq.ErrEmpty) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var number, n int
		must(fmt.Sscan(string(item.Value), &number, &n))
		key := [2]int64{int64(number), item.ID.Priority}
		if n <= last[key] {
			t.Errorf("priority %d: push %d of Batcher %d comes after its push %d", item.ID.Priority, n, number, last[key])
		}
		last[key] = n
		all++
	}
	t.Logf("%d pushed; faults %v", all, f.faults.Counts())
	wantEqual(t, "items", all, pushes.Load())
}
