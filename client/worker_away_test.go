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
	finish chan struct{}
	stop   func()       // returns once the worker leases no more
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

	succeeds(s.T)(s.jobs.PushBatch(s.Context(), make([]client.PushItem, n+o.Prefetch)))

	done, stop := run(w)
	b.done, b.stop = done, func() {
		stop()
		<-w.Stopping()
	}

	for range n {
		<-begun
	}

	s.waitUntilLeased(int64(n + o.Prefetch))
	return b
}

// endsUnsettled waits until Run returns, which must take no longer than this, and name all jobs as
// unsettled.
func (b *busyWorker) endsUnsettled(jobs int, most time.Duration) {
	b.Helper()
	begun := time.Now()

	err := <-b.done

	if took := time.Since(begun); took > most {
		b.Errorf("Run took %v to return, want at most %v", took, most)
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

// A worker that stops while NATS or the bridge is away tries to settle its jobs for half a minute.
// Then it says which are unsettled.
func TestStopWhileAway(t *testing.T) {
	for who, takeAway := range awayFor {
		for name, o := range map[string]client.WorkerOptions{"strict": {}, "ahead": {Prefetch: 5}} {
			for n, after := range map[int]time.Duration{
				1:  25 * time.Second,
				20: 0,
				21: 25 * time.Second,
			} {
				subtest(t, fmt.Sprint(who, " ", name, " ", n), func(t *testing.T) {
					s := newWorkshop(t)
					c := client.New(s.e.Connect()) // with the usual timeout
					b := newBusyWorker(s, c.PriorityQueue("jobs"), n, o)
					back := takeAway(s.e)

					b.stop()
					time.Sleep(after)
					close(b.finish)

					b.endsUnsettled(n+o.Prefetch, 31*time.Second-after)
					back()
				})
			}
		}
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

		b.stop()
		close(b.finish)

		b.endsUnsettled(3, 31*time.Second)
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

			close(b.finish)

			if away {
				b.endsUnsettled(jobs, client.DefaultTimeout+time.Second)
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
