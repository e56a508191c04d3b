package client_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// retries has a worker fail at the only job of a queue, and returns how long the job stayed back
// after each of its first n deliveries, to the second.
func (s *workshop) retries(
	queue string, n int, delay time.Duration, work client.Work,
) (pauses []time.Duration) {
	s.Helper()
	q := client.New(s.e.Conn).PriorityQueue(queue)
	succeeds(s.T)(q.Push(s.Context(), 0, []byte("1")))

	begun := make(chan time.Time, n+1)
	w := must(q.NewWorker(func(ctx context.Context, job *client.Job) error {
		if begun <- time.Now(); job.Deliveries > int64(n) {
			return nil
		}
		return work(ctx, job)
	}, quiet(client.WorkerOptions{RetryDelay: delay})))

	stop := s.start(w)
	last := <-begun
	for range n {
		next := <-begun
		pauses = append(pauses, next.Sub(last).Round(time.Second))
		last = next
	}

	stop()
	return pauses
}

// In a queue without a backoff a job that fails comes back after the worker's retry delay, twice as
// late after each further delivery, up to a minute or the delay itself.
func TestWorkerRetryDelay(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const sec = time.Second
		s := newWorkshop(t)
		for name, test := range map[string]struct {
			delay time.Duration
			want  []time.Duration
		}{
			"default": {
				want: []time.Duration{
					sec, 2 * sec, 4 * sec, 8 * sec, 16 * sec, 32 * sec, 60 * sec, 60 * sec,
				},
			},
			"long": {delay: 90 * sec, want: []time.Duration{90 * sec, 90 * sec}},
			"none": {delay: -1, want: []time.Duration{0, 0, 0}},
		} {
			fail := func(context.Context, *client.Job) error { return errors.New("no paper") }
			got := s.retries(name, len(test.want), test.delay, fail)
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: tried again after %v, want %v", name, got, test.want)
			}
		}
	})
}

// Whatever makes a job fail, it comes back after the retry delay.
func TestAllFailuresAreRetriedLater(t *testing.T) {
	noJSON := func(context.Context, *client.Job, int) (chan int, error) { return nil, nil }
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		for name, work := range map[string]client.Work{
			"error":      func(context.Context, *client.Job) error { return errors.New("empty") },
			"panic":      func(context.Context, *client.Job) error { panic("no paper") },
			"goexit":     func(context.Context, *client.Job) error { runtime.Goexit(); return nil },
			"no-handler": new(client.Mux).Work,
			"encoding":   client.Function[int, chan int]{}.Work(noJSON),
			"too-large": client.Returns(func(context.Context, *client.Job) ([]byte, error) {
				return make([]byte, 100_000), nil
			}),
			"successor": func(_ context.Context, job *client.Job) error {
				return job.Then("mail", 0, nil) // which the settings do not allow
			},
		} {
			if got := s.retries(name, 1, time.Hour, work); got[0] != time.Hour {
				t.Errorf("%s: tried again after %v, want the retry delay", name, got[0])
			}
		}
	})
}

// A delay that the Work names counts instead of the retry delay.
func TestRetryAfterReplacesTheRetryDelay(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)

		got := s.retries("jobs", 1, time.Hour, func(context.Context, *client.Job) error {
			return client.RetryAfter(time.Minute, nil)
		})

		if got[0] != time.Minute {
			t.Errorf("tried again after %v, want a minute", got[0])
		}
	})
}

// A Nak with a retry delay and another delay is refused, and the lease goes on.
func TestNakWithTwoDelays(t *testing.T) {
	s := newWorkshop(t)
	s.push("a")
	d := leaseOne(t, s.jobs)

	err := d.Nak(t.Context(), time.Second, client.RetryDelay(time.Second))
	if !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("Nak: %v", err)
	}

	ok(t, d.Nak(t.Context(), client.Backoff, client.RetryDelay(time.Hour)))
	if info := must(s.jobs.Info(t.Context())); info.Delayed != 1 {
		t.Errorf("there are %+v", info)
	}
}
