package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A job that takes too long ends, and goes back with the reason and as the Work says.
func TestJobTimeout(t *testing.T) {
	for _, test := range []struct {
		name string
		fail func(ctx context.Context) error
		want string // the reason of the dead letter
	}{
		{"the context's error", func(ctx context.Context) error { return ctx.Err() }, "timed out"},
		{"its cause", context.Cause, "timed out"},
		{"wrapped", func(ctx context.Context) error { return fmt.Errorf("fetch: %w", ctx.Err()) }, "timed out: fetch: context deadline exceeded"},
		{"with a delay", func(ctx context.Context) error { return client.RetryAfter(0, ctx.Err()) }, "timed out"},
		{"dropped", func(context.Context) error { return client.Drop("hopeless") }, "hopeless"},
	} {
		subtest(t, test.name, func(t *testing.T) {
			s := newWorkshop(t)
			s.configure(client.Settings{MaxDeliver: 1})
			s.push("a")
			s.start(must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
				if _, ok := ctx.Deadline(); !ok {
					t.Error("the context has no deadline")
				}
				<-ctx.Done()
				if context.Cause(ctx) != client.ErrTimedOut || ctx.Err() != context.DeadlineExceeded {
					t.Errorf("the context ended with %v, %v", context.Cause(ctx), ctx.Err())
				}
				return test.fail(ctx)
			}, quiet(client.WorkerOptions{JobTimeout: 20 * time.Millisecond}))))

			dead := leaseOne(t, s.dead, client.Expires(testenv.Patience)).DeadLetter
			if got := dead.Error + dead.Reason; !strings.HasPrefix(got, test.want) ||
				test.want == "timed out" && dead.Error != test.want {
				t.Errorf("a dead letter of %+v, want %q", dead, test.want)
			}
		})
	}
}

// A job whose Work returns nil is done, even if that comes after the timeout.
func TestJobTimeoutDone(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a", "b")
		var r record
		stop := s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
			r.add(job)
			if string(job.Value) == "a" {
				<-ctx.Done()
			}
			return nil
		}, quiet(client.WorkerOptions{JobTimeout: 20 * time.Millisecond}))))
		s.empty()
		stop()
		if got := fmt.Sprint(r.all()); got != "[a 1 b 1]" {
			t.Errorf("done: %s", got)
		}
	})
}

// Somebody else gets a job whose Work ignores the timeout. Until then its lease is extended.
func TestJobTimeoutIgnored(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a")
		hung, over := make(chan time.Time, 1), make(chan struct{})
		const lease = 300 * time.Millisecond
		stop := s.start(must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
			hung <- time.Now()
			<-over
			return errors.New("at last")
		}, quiet(client.WorkerOptions{AckWait: lease, JobTimeout: 3 * lease}))))
		defer stop()
		defer close(over)
		began := <-hung

		d := leaseOne(t, s.jobs, client.Expires(testenv.Patience))
		if took := time.Since(began); d.Deliveries != 2 || took < 3*lease {
			t.Errorf("delivery %d after %v", d.Deliveries, took)
		}
		ok(t, d.Ack(t.Context()))
	})
}
