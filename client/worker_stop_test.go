package client_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// The end of Run's context waits for the jobs under way, whose contexts outlive it and have its
// values, and no other is begun; a Shutdown without time ends them, and then they are back, and not
// counted.
func TestWorkerStops(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
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
			if context.Cause(ctx) != client.ErrStopped || ctx.Value(runs{}) != true {
				t.Errorf("the cause is %v, the value %v", context.Cause(ctx), ctx.Value(runs{}))
			}

			return ctx.Err()
		}, quiet(client.WorkerOptions{Concurrency: 2})))

		done, stop := run(w)
		<-begun
		<-begun

		stop()
		<-w.Stopping() // before one of the two leases, or begins, another
		close(finish)
		s.waitUntilLeased(1)
		kill(w)

		if err := <-done; err != nil || len(begun) > 0 {
			t.Errorf("Run: %v, and %d more jobs were begun", err, len(begun))
		}

		for _, value := range []string{"b", "c", "d", "e", "f"} {
			d, err := s.jobs.Lease(t.Context())
			if err != nil || string(d.Value) != value || d.Deliveries != 1 {
				t.Fatalf("leased %+v, %v; want %s", d, err, value)
			}
		}
	})
}

// Shutdown waits for the jobs under way as long as its context lasts, and then ends theirs.
func TestShutdown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a")
		begun, finish := make(chan context.Context), make(chan struct{})

		work := func(ctx context.Context, _ *client.Job) error {
			begun <- ctx
			<-finish
			return nil
		}

		w := must(s.jobs.NewWorker(work, client.WorkerOptions{}))
		done, _ := run(w)
		ctx := <-begun

		soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		failsWith(t, "no time", context.DeadlineExceeded)(nil, w.Shutdown(soon))
		<-ctx.Done()
		failsWith(t, "the cause", client.ErrStopped)(nil, context.Cause(ctx))

		patient := async(func() (string, error) { return "", w.Shutdown(t.Context()) })
		close(finish)
		ok(t, (<-patient).err)
		ok(t, <-done)
		s.waitUntilEmpty() // what is done in spite of that is done
		kill(w)
		ok(t, w.Shutdown(t.Context()))

		w = must(s.jobs.NewWorker(work, client.WorkerOptions{}))
		ok(t, w.Shutdown(t.Context())) // before Run
		ok(t, w.Run(t.Context()))
	})
}

// A Shutdown gives a job back, and not to the worker's own wait for another one.
func TestShutdownWithFreeSlots(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for _, o := range []client.WorkerOptions{
			{Concurrency: 2},
			{Concurrency: 4},
		} {
			s := newWorkshop(t)
			s.push("a")
			begun := make(chan struct{})
			o.AckWait = time.Hour

			w := must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
				close(begun)
				<-ctx.Done()
				return ctx.Err()
			}, quiet(o)))

			done, _ := run(w)
			<-begun
			waitForPops(t, s.e, 1)

			kill(w)

			ok(t, <-done)

			d, err := s.jobs.Lease(t.Context())
			if err != nil || d.Deliveries != 1 {
				t.Errorf("%+v: the job is not back: %+v, %v", o, d, err)
			}

			waitForPops(t, s.e, 0)
		}
	})
}

// An idle worker, of one queue or of two, that stops ends its waits, and is through with them when
// Run returns. Jobs that come at this moment are done or back.
func TestIdleWorkerStops(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		queues := []client.WeightedQueue{
			s.jobs.Weight(1), client.New(s.e.Conn).PriorityQueue("other").Weight(2),
		}

		for i := range 30 {
			n := 1 + i%2
			var jobs atomic.Int64

			w := must(client.NewWorker(func(context.Context, *client.Job) error {
				jobs.Add(1)
				return nil
			}, quiet(client.WorkerOptions{AckWait: time.Hour, Concurrency: n}), queues[:n]...))

			done, stop := run(w)
			waitForPops(t, s.e, n)

			pushed := async(func() (string, error) {
				_, err := s.jobs.PushBatch(t.Context(), make([]client.PushItem, 3))
				return "", err
			})

			stop()
			ok(t, <-done)
			waitForPops(t, s.e, 0)
			ok(t, (<-pushed).err)

			items, err := s.jobs.LeaseBatch(t.Context(), 3)
			for _, d := range items {
				if d.Deliveries != 1 {
					t.Errorf("round %d: delivery %d", i, d.Deliveries)
				}
				ok(t, d.Ack(t.Context()))
			}
			if len(items)+int(jobs.Load()) != 3 {
				t.Fatalf("round %d: %d jobs are back, %d done, %v", i, len(items), jobs.Load(), err)
			}
		}
	})
}

// A worker whose context has ended leases nothing.
func TestWorkerContextHasEnded(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a")
		heard := s.overhear()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		for range 20 {
			o := client.WorkerOptions{AckWait: time.Second, Concurrency: 10}
			w := must(s.jobs.NewWorker(doNothing, quiet(o)))
			ok(t, w.Run(ctx))
		}

		time.Sleep(time.Millisecond) // until all that was sent is there
		if n, _, err := heard.Pending(); n > 0 || err != nil {
			t.Errorf("%d requests, %v", n, err)
		}
	})
}

// A worker that stops while the connection is away does not wait for it.
func TestStopWithoutAConnection(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o := newOutage(t, client.WithTimeout(time.Hour))
		w := must(o.jobs.NewWorker(func(context.Context, *client.Job) error {
			return errors.New("no job was pushed")
		}, quiet(client.WorkerOptions{AckWait: 12 * time.Hour})))
		o.begin()
		done, stop := run(w)

		stop()

		ok(t, <-done)
		o.end(func() {}) // or the bridge may end with replies that nobody confirms
	})
}

// A closed connection does not come back, so Run ends, also while a job is being done.
func TestWorkerConnectionClosed(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, end := range map[string]func(*nats.Conn) error{
			"closed":  func(nc *nats.Conn) error { nc.Close(); return nil },
			"drained": (*nats.Conn).Drain,
		} {
			s := newWorkshop(t)
			s.push("a")
			nc := s.e.Connect()

			jobs := client.New(nc).PriorityQueue("jobs")
			work := func(context.Context, *client.Job) error { return end(nc) }
			w := must(jobs.NewWorker(work, quiet(client.WorkerOptions{})))

			err := w.Run(t.Context())

			if !errors.Is(err, nats.ErrConnectionClosed) &&
				!errors.Is(err, nats.ErrConnectionDraining) {
				t.Errorf("%s: %v", name, err)
			}

			w = must(jobs.NewWorker(doNothing, quiet(client.WorkerOptions{})))
			if err := w.Run(t.Context()); err == nil {
				t.Errorf("%s: a worker ran without a connection", name)
			}
		}
	})
}

// A worker whose bridge does not confirm any more that it waits asks again. It says so.
func TestWorkerWithoutHeartbeats(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		var asked atomic.Int64

		q := s.relayed(func(m *nats.Msg) *nats.Msg {
			if o, err := subjects.ParsePopOptions(m.Data); err == nil && o.Expires > 0 &&
				asked.Add(1) == 1 {
				// One heartbeat, and nothing more.
				return &nats.Msg{Header: nats.Header{subjects.HeaderHeartbeat: {"1"}}}
			}
			return nil
		})

		said := make(warnings, 10)
		o := client.WorkerOptions{AckWait: time.Hour, Logger: slog.New(said)}
		w := must(q.NewWorker(doNothing, o))
		w.SetHeartbeat(300 * time.Millisecond)
		s.start(w)
		waitForPops(t, s.e, 1)
		s.push("a")
		s.waitUntilEmpty()
		if len(said) != 1 || <-said != "cannot lease a job" {
			t.Error("it did not say so once")
		}
	})
}

// An idle worker costs few messages: a heartbeat every five seconds, a request and its end every
// five minutes.
func TestIdleWorkersAreCheap(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		before := s.e.Conn.Stats()

		messages := func() int {
			now := s.e.Conn.Stats()
			return int(now.InMsgs - before.InMsgs + now.OutMsgs - before.OutMsgs)
		}

		const workers = 20
		for range workers {
			o := client.WorkerOptions{AckWait: time.Minute}
			s.start(must(s.jobs.NewWorker(doNothing, quiet(o))))
		}

		waitForPops(t, s.e, workers)
		if n := messages(); n > 3*workers {
			t.Errorf("%d messages until %d workers waited", n, workers)
		}

		begun := messages()
		time.Sleep(10*time.Minute + time.Second)
		if n := messages() - begun; n < 100*workers || n > 130*workers {
			t.Errorf("%d messages to %d idle workers within ten minutes", n, workers)
		}
	})
}
