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
)

// slow is a store whose commits wait for the test. It records what happens.
type slow struct {
	hooked
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

type slowCommit struct {
	kv.Transaction
	slow *slow
}

func (c slowCommit) Get() (struct{}, error) {
	if err := <-c.slow.release; err != nil {
		c.Cancel()
		c.slow.note(err.Error())
		return struct{}{}, err
	}

	_, err := c.Commit().Get()
	c.slow.note("committed")
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

// onSlow runs a test in a synctest bubble, with a store that commits to the fixture's when told to.
func onSlow(t *testing.T, test func(f *fixture, s *slow)) {
	synctest.Test(t, func(t *testing.T) {
		f := onMem(t)
		s := &slow{hooked: hooked{Database: f.db}, release: make(chan error)}
		s.begun = func() { s.note("begin") }

		s.commit = func(tx kv.Transaction) kv.Future[struct{}] {
			s.note("commit")
			return slowCommit{tx, s}
		}

		test(f, s)
	})
}

// backwards is a clock that runs backwards, so that times give no order.
func backwards() func() time.Time {
	c := newClock(time.Now())
	c.stepping(-time.Second)
	return c.now
}

// A batch of pushes reads while the one before it commits, and its items still come after.
func TestPushesReadWhileOthersCommit(t *testing.T) {
	onSlow(t, func(f *fixture, s *slow) {
		b, q := fdbpq.NewBatcher(s, f.Keyspace), f.queue("jobs")
		b.SetNow(backwards())
		var last *fdbpq.Pending

		for i := range 4 {
			started := make(chan *fdbpq.Pending, 1)
			go func() {
				ops := []fdbpq.Op{opPush(q, 1, fmt.Sprint(i)), opPush(q, 2, fmt.Sprint(i, "b"))}
				started <- b.Start(f.ctx, ops)
			}()

			if i == 0 {
				wantList(t, "first", s.waiting(), "begin", "commit")
			} else {
				wantList(t, "meanwhile", s.waiting(), "begin")
				s.release <- nil
				wantList(t, "after the one before", s.waiting(), "committed", "commit")
				f.wantListed("afterwards", "jobs")
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
		f.wantListed("afterwards", "jobs")
		wantList(t, "items", f.values(q.PopMin), "0", "1", "2", "3", "0b", "1b", "2b", "3b")
	})
}

// A batch whose predecessor needs another attempt, with higher counts, still comes after it.
func TestPushesAfterOnesTriedAgain(t *testing.T) {
	for _, lost := range []error{kv.ErrTooOld, kv.ErrThrottled, kv.ErrCommitUnknown} {
		onSlow(t, func(f *fixture, s *slow) {
			b, q := fdbpq.NewBatcher(s, f.Keyspace), f.queue("jobs")
			b.SetNow(backwards())
			first := b.Start(f.ctx, []fdbpq.Op{opPush(q, 1, "first")})
			started := make(chan *fdbpq.Pending, 1)
			go func() { started <- b.Start(f.ctx, []fdbpq.Op{opPush(q, 1, "second")}) }()
			synctest.Wait()

			for i := range 3 {
				f.push(q, 1, fmt.Sprint("other ", i))
			}

			s.release <- lost
			s.release <- nil
			second := <-started
			go func() { s.release <- nil }()

			for _, p := range []*fdbpq.Pending{first, second} {
				must(p.Wait())
			}

			got := f.values(q.PopMin)
			wantList(t, lost.Error(), got, "other 0", "other 1", "other 2", "first", "second")
		})
	}
}

// A batch does not depend on the outcome of one that was given up.
func TestPushesAfterAbandonedOnes(t *testing.T) {
	onSlow(t, func(f *fixture, s *slow) {
		b, q := fdbpq.NewBatcher(s, f.Keyspace), f.queue("jobs")
		ctx, cancel := context.WithCancel(f.ctx)
		first := b.Start(ctx, []fdbpq.Op{opPush(q, 1, "first")})
		started := make(chan *fdbpq.Pending, 1)
		go func() { started <- b.Start(f.ctx, []fdbpq.Op{opPush(q, 1, "second")}) }()
		synctest.Wait()

		cancel()
		s.release <- kv.ErrCommitUnknown
		s.release <- nil // settles the first
		second := <-started
		go func() { s.release <- nil }()
		must(second.Wait())

		wantError(t, errOf(first.Wait()), kv.ErrCommitUnknown)
		f.wantListed("afterwards", "jobs") // though the first was to list it
		wantList(t, "items", f.values(q.PopMin), "second")
	})
}

// Batches that read more than counts, empty ones, and all batches of a serial engine wait until
// the previous batch has ended.
func TestOtherBatchesWait(t *testing.T) {
	for _, c := range []struct {
		first, second fdbpq.Op // of the batches; opNoItem is a push
		serial        bool
	}{
		{first: opNoItem, second: opPopMin},
		{first: opNoItem, second: opLen},
		{first: opNoItem, second: opPeekMin},
		{first: opPopMin, second: opNoItem},
		{first: opPopMax, second: opPopMin},
		{first: opNoItem, second: opNoItem, serial: true},
		{first: opNoItem}, // the second is empty
	} {
		onSlow(t, func(f *fixture, s *slow) {
			s.serial = c.serial
			b, q := fdbpq.NewBatcher(s, f.Keyspace), f.queue("jobs")
			f.apply(opPush(q, 1, "a"), opPush(q, 1, "b"))
			first := b.Start(f.ctx, []fdbpq.Op{op(c.first, q)})
			var second []fdbpq.Op

			if c.second.Kind != 0 {
				second = []fdbpq.Op{op(c.second, q), op(c.second, q)}
			}

			done := make(chan error)
			go func() {
				_, err := b.Apply(f.ctx, second)
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

// Each push of several Batchers is there exactly once, and one Batcher's pushes are in the order in
// which it started them, whatever happens to the commits.
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
				push := opPush(q, int64(w.random.IntN(2)), fmt.Sprintf("%d %d", w.number, w.pushes))

				if w.random.IntN(2) == 0 {
					push = inGroup(push, "a")
					push.Weight = 1 + w.random.IntN(3)
				}

				ops = append(ops, push)
			}

			under = append(under, w.batcher.Start(f.ctx, ops))
			wait(w.random.IntN(3))

			if w.random.IntN(4) == 0 { // something is given back, and has its old place
				lease := leaseOf(q, fdbpq.End(w.random.IntN(2)))
				leased := must(w.batcher.Apply(f.ctx, []fdbpq.Op{lease}))[0]
				nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leased.Lease.Token}
				if leased.Err == nil {
					wantErrors(f.T, must(w.batcher.Apply(f.ctx, []fdbpq.Op{nak})))
				}
			}
		}

		wait(0)
	})

	f.calm()
	last, all := map[string]int{}, int64(0)

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
		key := fmt.Sprintf("Batcher %d, priority %d, group %q",
			number, item.ID.Priority, item.Group())
		if n <= last[key] {
			t.Errorf("%s: push %d comes after push %d", key, n, last[key])
		}

		last[key] = n
		all++
	}

	t.Logf("%d pushed; faults %v", all, f.faults.Counts())
	wantEqual(t, "items", all, pushes.Load())
}
