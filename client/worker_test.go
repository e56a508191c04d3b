package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A worker does the jobs in their order, those that come later too, and acknowledges each.
func TestWorker(t *testing.T) {
	s := newWorkshop(t)
	s.push("a", "b", "c")
	var r record
	w := must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		r.add(job)
		if job.Queue != "jobs" || job.ID == "" {
			t.Errorf("job %+v", job)
		}
		return nil
	}, client.WorkerOptions{}))
	stop := s.start(w)
	s.empty()
	s.push("d")
	s.empty()
	stop()
	if got, want := r.all(), []string{"a 1", "b 1", "c 1", "d 1"}; !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("a worker ran twice")
	}
}

// Errors are negative acknowledgements, by the queue's backoff.
func TestWorkerErrors(t *testing.T) {
	s := newWorkshop(t)
	s.configure(client.Settings{MaxDeliver: 2, Backoff: []time.Duration{time.Millisecond}})
	s.push("fails", "panics", "snoozes", "drops")
	var r record
	snoozed := false
	w := must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		r.add(job)
		switch string(job.Value) {
		case "fails":
			return errors.New("no paper")
		case "panics":
			panic("on fire")
		case "snoozes":
			if !snoozed {
				snoozed = true
				return fmt.Errorf("not yet: %w", client.Snooze(time.Millisecond))
			}
			return nil
		}
		return fmt.Errorf("what is this: %w", client.Drop("nonsense"))
	}, quiet(client.WorkerOptions{})))
	s.start(w)
	s.empty()
	done := r.all()
	slices.Sort(done)
	if want := []string{"drops 1", "fails 1", "fails 2", "panics 1", "panics 2", "snoozes 1", "snoozes 1"}; !slices.Equal(done, want) {
		t.Errorf("done: %q, want %q", done, want)
	}
	want := map[string]struct{ reason, text string }{
		"fails":  {"max_deliver", "no paper"},
		"panics": {"max_deliver", "worker_test.go"},
		"drops":  {"nonsense", ""},
	}
	for range want {
		item, err := s.dead.PopMin(t.Context())
		if err != nil || item.DeadLetter == nil {
			t.Fatalf("%+v, %v", item, err)
		}
		w := want[string(item.Value)]
		if item.DeadLetter.Reason != w.reason || !strings.Contains(item.DeadLetter.Error, w.text) {
			t.Errorf("%s: %+v, want %+v", item.Value, item.DeadLetter, w)
		}
	}
}

// A job may take longer than its lease: nobody else gets it.
func TestWorkerExtends(t *testing.T) {
	for _, o := range []client.WorkerOptions{
		{AckWait: 600 * time.Millisecond},
		{AckWait: 600 * time.Millisecond, Prefetch: 3},
		{}, // as the settings of the queue say
	} {
		s := newWorkshop(t)
		s.configure(client.Settings{AckWait: 600 * time.Millisecond})
		s.push("long", "short")
		var r record
		work := func(ctx context.Context, job *client.Job) error {
			r.add(job)
			if string(job.Value) == "long" {
				select {
				case <-time.After(1500 * time.Millisecond):
				case <-ctx.Done():
					t.Errorf("the context ended: %v", context.Cause(ctx))
				}
			}
			return nil
		}
		s.start(must(s.jobs.NewWorker(work, o)))
		s.start(must(s.jobs.NewWorker(work, client.WorkerOptions{})))
		s.empty()
		done := r.all()
		slices.Sort(done)
		if want := []string{"long 1", "short 1"}; !slices.Equal(done, want) {
			t.Errorf("%+v: done %q, want %q", o, done, want)
		}
	}
}

// The context of a job ends when somebody takes the job away.
func TestWorkerLosesLease(t *testing.T) {
	s := newWorkshop(t)
	s.push("a", "b")
	lost := make(chan error, 1)
	s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		if string(job.Value) == "a" {
			if err := s.jobs.Remove(t.Context(), job.ID); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			lost <- context.Cause(ctx)
		}
		return ctx.Err()
	}, quiet(client.WorkerOptions{AckWait: 100 * time.Millisecond}))))
	if err := <-lost; !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("the cause is %v", err)
	}
	s.empty()
}

// Stop waits for the jobs under way, and no other is begun; a second Stop ends them, and then they
// are back, and not counted.
func TestWorkerStops(t *testing.T) {
	for _, prefetch := range []int{0, 2} {
		s := newWorkshop(t)
		s.push("a", "b", "c", "d", "e", "f")
		begun, finish := make(chan string, 10), make(chan struct{})
		w := must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
			begun <- string(job.Value)
			if string(job.Value) == "a" {
				<-finish
				return nil
			}
			<-ctx.Done()
			if context.Cause(ctx) != client.ErrStopped {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return ctx.Err()
		}, quiet(client.WorkerOptions{Concurrency: 2, Prefetch: prefetch})))
		done := run(w)
		<-begun
		<-begun
		w.Stop()
		close(finish)
		s.untilLeased(1)
		w.Stop()
		if err := <-done; err != nil || len(begun) > 0 {
			t.Errorf("Run: %v, and %d more jobs were begun", err, len(begun))
		}
		for _, value := range []string{"b", "c", "d", "e", "f"} {
			d, err := s.jobs.LeaseMin(t.Context())
			if err != nil || string(d.Value) != value || d.Deliveries != 1 {
				t.Fatalf("leased %+v, %v; want %s", d, err, value)
			}
		}
	}
}

// The end of Run's context is a Stop.
func TestWorkerContext(t *testing.T) {
	s := newWorkshop(t)
	s.push("a")
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	w := must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		cancel()
		if ctx.Err() != nil || ctx.Value(key{}) != "value" {
			t.Errorf("the context of a job: %v, %v", ctx.Err(), ctx.Value(key{}))
		}
		return nil
	}, client.WorkerOptions{}))
	ok(t, w.Run(ctx))
	s.empty()
}

// With Prefetch all jobs are done once, by as many as there are at a time.
func TestWorkerPrefetch(t *testing.T) {
	s := newWorkshop(t)
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprintf("%03d 1", i))
		s.push(fmt.Sprintf("%03d", i))
	}
	var r record
	var now, most atomic.Int64
	stop := s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		r.add(job)
		return nil
	}, client.WorkerOptions{Concurrency: 4, Prefetch: 20})))
	s.empty()
	stop()
	done := r.all()
	slices.Sort(done)
	if !slices.Equal(done, want) || most.Load() > 4 {
		t.Errorf("done %q, up to %d at a time", done, most.Load())
	}
}

// Workers ride through restarts of the bridge and of NATS, and every job is done.
func TestWorkerRidesThrough(t *testing.T) {
	s := newWorkshop(t)
	var mu sync.Mutex
	done := map[string]int{}
	for _, prefetch := range []int{0, 4} {
		s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
			mu.Lock()
			defer mu.Unlock()
			done[string(job.Value)]++
			return nil
		}, quiet(client.WorkerOptions{Concurrency: 2, Prefetch: prefetch, AckWait: time.Second}))))
	}
	pushed := 0
	push := func(n int) {
		for range n {
			s.push(fmt.Sprint(pushed))
			pushed++
		}
	}
	push(100)
	ok(t, s.e.Bridge.Stop())
	s.e.Bridge = s.e.StartBridge()
	s.e.Bridge.WaitReady()
	push(100)
	s.e.NATS.Stop()
	s.e.NATS.Start()
	s.e.Bridge.WaitReady()
	push(100)
	s.empty()
	mu.Lock()
	defer mu.Unlock()
	if len(done) != pushed {
		t.Errorf("%d of %d jobs were done", len(done), pushed)
	}
}

func TestWorkerMiddleware(t *testing.T) {
	s := newWorkshop(t)
	s.push("a")
	var order []string
	named := func(name string) func(client.Work) client.Work {
		return func(work client.Work) client.Work {
			return func(ctx context.Context, job *client.Job) error {
				order = append(order, name)
				return work(ctx, job)
			}
		}
	}
	stop := s.start(must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
		order = append(order, "work")
		return nil
	}, client.WorkerOptions{Middleware: []func(client.Work) client.Work{named("outer"), named("inner")}})))
	s.empty()
	stop()
	if want := []string{"outer", "inner", "work"}; !slices.Equal(order, want) {
		t.Errorf("called %q, want %q", order, want)
	}
}

// Options that can never work are refused, each with what would be right.
func TestWorkerBadOptions(t *testing.T) {
	c := client.New(testenv.New(t, testenv.Options{}).Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	work := doNothing
	same := func(work client.Work) client.Work { return work }
	for _, test := range []struct {
		make func(client.Work, client.WorkerOptions) (*client.Worker, error)
		work client.Work
		o    client.WorkerOptions
		want string
	}{
		{c.PriorityQueue("no spaces").NewWorker, work, client.WorkerOptions{}, "bad queue name"},
		{jobs.NewWorker, nil, client.WorkerOptions{}, "the Work is nil: want a function"},
		{jobs.NewWorker, work, client.WorkerOptions{Concurrency: -1}, "Concurrency is -1: want 1 or more"},
		{jobs.NewWorker, work, client.WorkerOptions{Prefetch: -1}, "Prefetch is -1: want 0 or more"},
		{jobs.NewWorker, work, client.WorkerOptions{Prefetch: 100_000}, "at most 100000 together"},
		{jobs.NewWorker, work, client.WorkerOptions{Prefetch: math.MaxInt, Concurrency: math.MaxInt}, "at most 100000 together"},
		{jobs.NewWorker, work, client.WorkerOptions{AckWait: time.Millisecond}, "AckWait is 1ms: want 100ms to 12h0m0s, or 0"},
		{jobs.NewWorker, work, client.WorkerOptions{AckWait: -time.Second}, "AckWait is -1s: want 100ms to 12h0m0s, or 0"},
		{mail.NewWorker, work, client.WorkerOptions{AckWait: 24 * time.Hour, Prefetch: 2}, "AckWait is 24h0m0s"},
		{mail.NewWorker, work, client.WorkerOptions{Max: true}, "Max with a FIFO queue"},
		{jobs.NewWorker, work, client.WorkerOptions{Middleware: []func(client.Work) client.Work{same, nil}}, "Middleware[1] is nil: want a function"},
		{jobs.NewWorker, work, client.WorkerOptions{Middleware: []func(client.Work) client.Work{
			func(client.Work) client.Work { return nil }, same}}, "Middleware[0] returned nil: want a function"},
		{mail.NewWorker, nil, client.WorkerOptions{Max: true, Prefetch: -1}, "nil: want a function; Prefetch is -1: want 0 or more; Max"},
	} {
		w, err := test.make(test.work, test.o)
		if w != nil || !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
}
