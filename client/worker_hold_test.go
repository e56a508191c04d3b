package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

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

// As long as a job is being done, its lease is extended, even after the second Stop.
func TestWorkerExtendsWhenStopped(t *testing.T) {
	s := newWorkshop(t)
	s.push("a")
	begun, finish := make(chan struct{}), make(chan struct{})
	w := must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
		close(begun)
		<-finish
		return nil
	}, quiet(client.WorkerOptions{AckWait: time.Second})))
	done := run(w)
	<-begun
	w.Stop()
	w.Stop()
	if d, err := s.jobs.LeaseMin(t.Context(), client.Expires(2500*time.Millisecond)); !errors.Is(err, client.ErrEmpty) {
		t.Errorf("leased %+v, %v", d, err)
	}
	close(finish)
	ok(t, <-done)
	s.empty()
}

// If the lease cannot be extended, the context ends before anybody else can have the job. What is done counts
// nevertheless, as long as nobody has.
func TestWorkerCannotExtend(t *testing.T) {
	s := newWorkshop(t)
	s.push("a")
	begun, cause := make(chan struct{}), make(chan error)
	s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		if job.Deliveries > 1 {
			t.Errorf("delivery %d", job.Deliveries)
		}
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	}, quiet(client.WorkerOptions{AckWait: 300 * time.Millisecond}))))
	<-begun
	ok(t, s.e.Bridge.Stop())
	if err := <-cause; !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("the cause is %v", err)
	}
	s.e.StartBridge().WaitReady()
	s.empty()
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

// A job that was leased ahead and is lost meanwhile is not begun.
func TestWorkerLosesPrefetched(t *testing.T) {
	s := newWorkshop(t)
	s.push("a", "b", "c")
	var r record
	lost := make(warnings, 10)
	s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		r.add(job)
		if string(job.Value) != "a" {
			return nil
		}
		s.untilLeased(3)
		if _, err := s.jobs.Purge(t.Context(), client.Leased); err != nil {
			t.Error(err)
		}
		for range 3 {
			<-lost
		}
		s.push("d")
		return nil
	}, client.WorkerOptions{Prefetch: 2, AckWait: time.Second, Logger: slog.New(lost)})))
	testenv.Eventually(t, func() error {
		if got := r.all(); !slices.Contains(got, "d 1") {
			return fmt.Errorf("done: %q", got)
		}
		return nil
	})
	if got, want := r.all(), []string{"a 1", "d 1"}; !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
}
