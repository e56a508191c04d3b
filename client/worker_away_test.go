package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// busyWorker is a worker that does the first n of some jobs, until the test lets them end.
type busyWorker struct {
	*workshop
	worker *client.Worker
	finish chan struct{}
	stop   func()       // ends the context of Run
	done   <-chan error // the outcome of Run
}

func newBusyWorker(s *workshop, q *client.Queue, n int, o client.WorkerOptions) *busyWorker {
	s.Helper()
	b := &busyWorker{workshop: s, finish: make(chan struct{})}
	begun := make(chan struct{}, n)
	o.Concurrency, o.AckWait = n, time.Hour

	w := must(q.NewWorker(func(context.Context, *client.Job) error {
		begun <- struct{}{}
		<-b.finish
		return nil
	}, quiet(o)))

	succeeds(s.T)(s.jobs.PushBatch(s.Context(), make([]client.PushItem, n)))

	b.worker = w
	b.done, b.stop = run(w)

	for range n {
		<-begun
	}

	s.waitUntilLeased(int64(n))
	return b
}

// shutdown begins a Shutdown.
func (b *busyWorker) shutdown(ctx context.Context) { go func() { _ = b.worker.Shutdown(ctx) }() }

// endsUnsettled waits until Run returns, which must be so long after a time, or up to a second
// later, and name all jobs as unsettled.
func (b *busyWorker) endsUnsettled(jobs int, begun time.Time, want time.Duration) {
	b.Helper()

	err := <-b.done

	if took := time.Since(begun); took < want || took > want+time.Second {
		b.Errorf("Run took %v to return, want %v and up to a second more", took, want)
	}

	text := fmt.Sprintf(": %d of them, such as jobs F", jobs)
	if !errors.Is(err, client.ErrUnsettled) || !strings.Contains(fmt.Sprint(err), text) ||
		strings.Count(fmt.Sprint(err), "jobs F") != min(jobs, 10) {
		b.Errorf("Run: %v; want %q and up to 10 ids", err, text)
	}
}

// awayFor has ways in which NATS or the bridge can be away, each with what brings it back.
var awayFor = map[string]func(e *testenv.Env) (back func()){
	"NATS": func(e *testenv.Env) func() {
		e.NATS.Stop()
		return e.NATS.Start
	},
	"bridge": func(e *testenv.Env) func() {
		e.Bridge.Stop()
		return func() { e.StartBridge().WaitReady() }
	},
}

// A worker that stops while NATS or the bridge is away tries to settle its jobs until five seconds
// after the grace that it was given, or 30 s after it began to stop. Then it says which are
// unsettled.
func TestStopWhileAway(t *testing.T) {
	shutdown := func(grace time.Duration) func(*busyWorker) {
		return func(b *busyWorker) {
			ctx, cancel := context.WithTimeout(b.Context(), grace)
			b.Cleanup(cancel)
			b.shutdown(ctx)
		}
	}

	for who, takeAway := range awayFor {
		for _, test := range []struct {
			name  string
			jobs  int
			stop  func(*busyWorker)
			after time.Duration // when the jobs end
			want  time.Duration // when Run returns
		}{
			{
				name: "the context ends",
				jobs: 20,
				stop: func(b *busyWorker) { b.stop() },
				want: 30 * time.Second,
			},
			{
				name:  "the context ends, then jobs",
				jobs:  21,
				stop:  func(b *busyWorker) { b.stop() },
				after: 25 * time.Second,
				want:  30 * time.Second,
			},
			{
				name: "Shutdown without a deadline",
				jobs: 1,
				stop: func(b *busyWorker) { b.shutdown(b.Context()) },
				want: 30 * time.Second,
			},
			{
				name: "two seconds",
				jobs: 20,
				stop: shutdown(2 * time.Second),
				want: 7 * time.Second,
			},
			{
				name:  "two seconds, then jobs end",
				jobs:  21,
				stop:  shutdown(2 * time.Second),
				after: 3 * time.Second,
				want:  7 * time.Second,
			},
			{
				name: "a minute",
				jobs: 3,
				stop: shutdown(time.Minute),
				want: 65 * time.Second,
			},
			{
				name: "a minute in place of the default",
				jobs: 3,
				stop: func(b *busyWorker) {
					b.stop()
					<-b.worker.Stopping()
					shutdown(time.Minute)(b)
				},
				want: 65 * time.Second,
			},
			{
				name: "Shutdown is cancelled",
				jobs: 3,
				stop: func(b *busyWorker) {
					ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
					b.Cleanup(cancel)
					b.shutdown(ctx)
					time.AfterFunc(3*time.Second, cancel)
				},
				want: 8 * time.Second,
			},
			{
				name: "no grace",
				jobs: 3,
				stop: shutdown(-time.Hour),
				want: 5 * time.Second,
			},
		} {
			subtest(t, who+" "+test.name, func(t *testing.T) {
				s := newWorkshop(t)
				c := client.New(s.e.Connect()) // with the usual timeout
				b := newBusyWorker(s, c.PriorityQueue("jobs"), test.jobs, client.WorkerOptions{})
				back := takeAway(s.e)

				begun := time.Now()
				test.stop(b)
				time.Sleep(test.after)
				close(b.finish)

				b.endsUnsettled(test.jobs, begun, test.want)
				back()
			})
		}
	}
}

// If NATS and the bridge are back before these five seconds are over, no job is left: those that
// are done are acknowledged, and the others given back.
func TestStopAndBackInTime(t *testing.T) {
	for who, takeAway := range awayFor {
		subtest(t, who, func(t *testing.T) {
			s := newWorkshop(t)
			s.push("done", "not done")
			begun, finish := make(chan struct{}), make(chan struct{})
			w := must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
				begun <- struct{}{}
				if string(job.Value) == "done" {
					<-finish
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}, quiet(client.WorkerOptions{Concurrency: 2, AckWait: time.Hour})))
			done, _ := run(w)
			<-begun
			<-begun
			back := takeAway(s.e)

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			close(finish)
			failsWith(t, "Shutdown", context.DeadlineExceeded)(nil, w.Shutdown(ctx))
			time.Sleep(3 * time.Second)
			back()

			ok(t, <-done)
			d := leaseOne(t, s.jobs)
			if string(d.Value) != "not done" || d.Deliveries != 1 {
				t.Errorf("back is %q, delivery %d", d.Value, d.Deliveries)
			}
			failsWith(t, "no other job", client.ErrEmpty)(s.jobs.Lease(t.Context()))
		})
	}
}

// Also if the bridge takes the acknowledgements and does not answer, as one that hangs.
func TestStopWhileNobodyAnswers(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		hang := make(chan struct{})

		q := s.relayed(func(m *nats.Msg) *nats.Msg {
			if strings.Contains(m.Subject, ".ack.") {
				<-hang
			}
			return nil
		})

		t.Cleanup(func() { close(hang) }) // before the relay waits for its requests
		b := newBusyWorker(s, q, 3, client.WorkerOptions{})

		begun := time.Now()
		b.stop()
		close(b.finish)

		b.endsUnsettled(3, begun, 30*time.Second)
	})
}

// A job that ends long after the worker began to stop is acknowledged, or at least that is tried.
func TestJobEndsLongAfterStop(t *testing.T) {
	const jobs = 3
	for _, away := range []bool{true, false} {
		subtest(t, fmt.Sprint("away: ", away), func(t *testing.T) {
			s := newWorkshop(t)
			c := client.New(s.e.Connect())
			b := newBusyWorker(s, c.PriorityQueue("jobs"), jobs, client.WorkerOptions{})

			b.stop()
			time.Sleep(10 * time.Minute)

			if away {
				defer awayFor["NATS"](s.e)()
			}

			begun := time.Now()
			close(b.finish)

			if away {
				b.endsUnsettled(jobs, begun, 5*time.Second)
			} else {
				ok(t, <-b.done)
				s.waitUntilEmpty()
			}
		})
	}
}

// A Work that shuts its own worker down with its own context is told so, and the worker ends.
func TestShutdownInWork(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a", "b")
		var w *client.Worker

		w = must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
			failsWith(t, "Shutdown", client.ErrBadRequest)(nil, w.Shutdown(ctx))
			return nil
		}, quiet(client.WorkerOptions{JobTimeout: time.Hour})))

		ok(t, w.Run(t.Context()))

		if n, err := s.jobs.Len(t.Context()); n != 1 || err != nil {
			t.Errorf("%d items are left, %v; want 1", n, err)
		}
	})
}

// An acknowledgement whose reply was lost with the connection is sent again once that is back, long
// before it would have timed out.
func TestWorkerRepeatsAcknowledgementsWhenNATSIsBack(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		lost := make(chan struct{})
		lose := sync.OnceFunc(func() { close(lost) })
		jobs := s.relayed(func(m *nats.Msg) *nats.Msg {
			if strings.Contains(m.Subject, ".ack.") {
				select {
				case <-lost:
				default:
					m.Reply = ""
					lose()
				}
			}
			return nil
		})

		done := make(chan struct{}, 2)
		work := func(context.Context, *client.Job) error {
			done <- struct{}{}
			return nil
		}
		for range 2 {
			must(s.jobs.Push(t.Context(), 0, nil))
		}
		s.start(must(jobs.NewWorker(work, client.WorkerOptions{AckWait: 3 * time.Second})))
		<-done
		<-lost

		s.e.NATS.Restart()

		began := time.Now()
		<-done
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the next job began %v after the connection was back", took)
		}
		s.waitUntilEmpty()
	})
}
