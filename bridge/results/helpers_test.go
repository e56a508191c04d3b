package results

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// store is a store of jobs. A read takes its snapshot halfway.
type store struct {
	latency time.Duration // of a read
	hangs   bool          // reads last until their context ends
	each    time.Duration // how much longer a read takes for each job

	mu struct {
		sync.Mutex
		jobs    map[int64]fdbpq.ItemState // of those that are there, by number
		outcome map[int64]int             // of those that are done
		errs    map[int64]error           // what reading a job fails with
		err     error                     // what every read fails with
		reads   int
	}
}

func newStore() *store {
	s := &store{latency: 2 * time.Millisecond}
	s.mu.jobs, s.mu.outcome = map[int64]fdbpq.ItemState{}, map[int64]int{}
	s.mu.errs = map[int64]error{}
	return s
}

// jobOf returns the job with a number.
func jobOf(n int64) fdbpq.QueueJob {
	return fdbpq.QueueJob{Queue: fdbpq.QueueName{Name: "jobs"}, Job: fdbpq.ID{Count: n}}
}

// begin adds jobs whose last lease is not over.
func (s *store) begin(numbers ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		s.mu.jobs[n] = fdbpq.Leased
	}
}

// end ends a job with an outcome.
func (s *store) end(n int64, outcome int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.jobs, n)
	s.mu.outcome[n] = outcome
}

// fail has reads fail.
func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.err = err
}

// reads returns how many reads there were.
func (s *store) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.reads
}

// Read is Config.Read. The result of a job that is done has the outcome in Len.
func (s *store) Read(ctx context.Context, ops []fdbpq.Op) ([]fdbpq.Result, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}

	time.Sleep(s.latency/2 + min(time.Duration(len(ops))*s.each, waitTimeout))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	s.mu.reads++
	err := s.mu.err
	results := make([]fdbpq.Result, len(ops))
	for i, op := range ops {
		r := &results[i]
		state, open := s.mu.jobs[op.ID.Count]
		outcome, done := s.mu.outcome[op.ID.Count]
		switch {
		case s.mu.errs[op.ID.Count] != nil:
			r.Err = s.mu.errs[op.ID.Count]
			if err == nil && errors.Is(r.Err, kv.ErrCorrupt) {
				err = r.Err
			}
		case open:
			r.State = state
		case done:
			r.Len, r.Item.DeadLetter = int64(outcome), &fdbpq.DeadLetter{}
		default:
			r.Err = fdbpq.ErrNotFound
		}
	}
	s.mu.Unlock()
	time.Sleep(s.latency / 2)

	if err != nil {
		return nil, err
	}
	return results, nil
}

// test is Waits on a store.
type test struct {
	*Waits
	t       *testing.T
	store   *store
	waiters int // counted by Config.Admit
	most    int
	mu      sync.Mutex
}

// waitTimeout is the Timeout of the Waits of a test.
const waitTimeout = 4 * time.Second

// run runs a test with Waits, in a bubble.
func run(t *testing.T, f func(x *test)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &test{t: t, store: newStore(), most: 1 << 20}
		x.Waits = New(Config{
			Read: x.store.Read, Timeout: waitTimeout, Admit: x.admit, Release: x.release,
			Waiting: func() {}, Warn: func(string, ...any) {},
		})

		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { x.Run(ctx) })

		f(x)

		x.Close()
		running.Wait()
		cancel()
		if x.waiters != 0 || x.Len() != 0 || len(x.Waits.mu.jobs) != 0 {
			t.Errorf("in the end %d waits are counted, %d are left, of %d jobs",
				x.waiters, x.Len(), len(x.Waits.mu.jobs))
		}
	})
}

func (x *test) admit() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.waiters == x.most {
		return dispatch.ErrTooManyWaiters
	}
	x.waiters++
	return nil
}

func (x *test) release() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiters--
}

// asked is a wait of a test.
type asked struct {
	t       *testing.T
	n       int64 // the number of its job
	began   time.Time
	mu      sync.Mutex
	answers []string
	took    time.Duration
}

// wait waits for a job.
func (x *test) wait(n int64, expires time.Duration) *asked {
	x.t.Helper()
	a := &asked{t: x.t, n: n, began: time.Now()}
	err := x.Add(&Wait{
		Job:    jobOf(n),
		Until:  time.Now().Add(expires),
		Answer: a.answer,
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return a
}

func (a *asked) answer(r *fdbpq.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = time.Since(a.began)
	switch {
	case errors.Is(err, dispatch.ErrUnavailable):
		a.answers = append(a.answers, "unavailable")
	case errors.Is(err, fdbpq.ErrNotFound):
		a.answers = append(a.answers, "not found")
	case err != nil:
		a.answers = append(a.answers, err.Error())
	case r.State == fdbpq.Leased:
		a.answers = append(a.answers, "leased")
	default:
		a.answers = append(a.answers, strconv.Itoa(int(r.Len)))
	}
}

// told returns the answers.
func (a *asked) told() string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.answers)
}

// soon is time for a few looks.
const soon = 20 * time.Millisecond

// want checks that the wait is answered once, with that answer, after that time or soon after it.
func (a *asked) want(what, answer string, after time.Duration) {
	a.t.Helper()
	time.Sleep(soon)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) != 1 || a.answers[0] != answer {
		a.t.Errorf("%s: job %d: got %q, want %q once", what, a.n, a.answers, answer)
	} else if late := a.took - after; late < 0 || late > soon {
		a.t.Errorf("%s: job %d: answered after %v, want %v", what, a.n, a.took, after)
	}
}

// wantWaiting checks that the wait was not answered.
func (a *asked) wantWaiting(what string) {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) > 0 {
		a.t.Errorf("%s: job %d: got %q, want no answer yet", what, a.n, a.answers)
	}
}
