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
		{
			"wrapped",
			func(ctx context.Context) error { return fmt.Errorf("fetch: %w", ctx.Err()) },
			"timed out: fetch: context deadline exceeded",
		},
		{
			"with a delay",
			func(ctx context.Context) error { return client.RetryAfter(0, ctx.Err()) },
			"timed out",
		},
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
				if context.Cause(ctx) != client.ErrTimedOut ||
					ctx.Err() != context.DeadlineExceeded {
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

// A job whose Work returns nil is done, even after the timeout. If the Work does not return,
// somebody else gets the job, and not before its lease, extended until the timeout, is over.
func TestJobTimeoutIgnored(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("late", "hangs")
		over := make(chan struct{})
		var r record

		stop := s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
			r.add(job)
			if <-ctx.Done(); string(job.Value) == "late" {
				return nil
			}

			<-over
			return errors.New("at last")
		}, quiet(client.WorkerOptions{AckWait: time.Minute, JobTimeout: 90 * time.Second}))))
		waitFor(t, "the second job", func() bool { return len(r.all()) == 2 })

		began := time.Now()
		d := leaseOne(t, s.jobs, client.Expires(time.Hour))
		if took := time.Since(began); string(d.Value) != "hangs" || d.Deliveries != 2 ||
			took < time.Minute || took > 3*time.Minute {
			t.Errorf("delivery %d of %s after %v", d.Deliveries, d.Value, took)
		}

		ok(t, d.Ack(t.Context()))
		close(over)
		stop()

		if got := fmt.Sprint(r.all()); got != "[late 1 hangs 1]" {
			t.Errorf("done: %s", got)
		}
	})
}
