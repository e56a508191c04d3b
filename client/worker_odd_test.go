package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// A Work that ends its goroutine, as a failed assertion of a test does, has failed. The worker goes
// on.
func TestWorkCallsGoexit(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{MaxDeliver: 2})
		s.push("ends", "returns")
		s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
			if string(job.Value) == "ends" {
				runtime.Goexit()
			}
			return nil
		}, quiet(client.WorkerOptions{JobTimeout: time.Hour}))))

		s.waitUntilEmpty()

		d := leaseOne(t, s.dead)
		if d.DeadLetter.Error != "Work called runtime.Goexit" || d.DeadLetter.Deliveries != 2 {
			t.Errorf("the dead letter says %+v", d.DeadLetter)
		}
	})
}

// A job whose Work names a delay that is over, or beyond ten years, fails for that reason, and
// comes back after the retry delay.
func TestBadDelaysFail(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		for n, delay := range []time.Duration{
			math.MinInt64, -time.Nanosecond, settings.MaxDelay + 1, math.MaxInt64,
		} {
			for name, failed := range map[string]error{
				"snooze": client.Snooze(delay),
				"retry":  client.RetryAfter(delay, errors.New("never")),
			} {
				queue := fmt.Sprint(name, n)
				work := func(context.Context, *client.Job) error { return failed }

				if got := s.retries(queue, 1, time.Hour, work); got[0] != time.Hour {
					t.Errorf("%s %v: tried again after %v, want an hour", name, delay, got[0])
				}
				if !errors.Is(failed, client.ErrBadRequest) ||
					!strings.Contains(failed.Error(), "want 0s to 87600h0m0s") {
					t.Errorf("%s %v: %v", name, delay, failed)
				}
			}
		}
	})
}

// Without a connection, no worker starts.
func TestWorkerWithoutConnection(t *testing.T) {
	none := client.New(nil)
	for _, queues := range [][]client.WeightedQueue{
		{none.PriorityQueue("jobs").Weight(1)},
		{none.PriorityQueue("jobs").Weight(1), none.FIFOQueue("mail").Weight(1)},
	} {
		w := must(client.NewWorker(doNothing, quiet(client.WorkerOptions{}), queues...))
		failsWith(t, "Run", nats.ErrInvalidConnection)(len(queues), w.Run(t.Context()))
	}
}

// A grace that is longer than any duration counts as long.
func TestShutdownWithFarDeadline(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		c := client.New(s.e.Connect())
		b := newBusyWorker(s, c.PriorityQueue("jobs"), 2, client.WorkerOptions{})
		back := awayFor["NATS"](s.e)
		end := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		ctx, cancel := context.WithDeadline(t.Context(), end)
		defer cancel()

		b.shutdown(ctx)
		close(b.finish)
		time.Sleep(time.Minute)
		back()

		ok(t, <-b.done)
		s.waitUntilEmpty()
	})
}

// freezing makes connections to a NATS server that a test can freeze.
type freezing struct {
	*testenv.Server
	frozen atomic.Bool
	thaw   chan struct{}
}

type freezingConn struct {
	net.Conn
	of *freezing
}

func (f *freezing) InProcessConn() (net.Conn, error) {
	c, err := f.Server.InProcessConn()
	return freezingConn{c, f}, err
}

func (c freezingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.of.frozen.Load() {
		<-c.of.thaw
	}
	return n, err
}

// A worker that stops while NATS is frozen and it extends many leases keeps its time: it does not
// wait for the end of one attempt after the other.
func TestStopWhileExtendingManyLeases(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const jobs = 64
		s := newWorkshop(t)
		server := &freezing{Server: s.e.NATS, thaw: make(chan struct{})}
		nc := s.e.Connect(nats.InProcessServer(server), nats.PingInterval(time.Hour))
		defer nc.Close()
		defer close(server.thaw)

		succeeds(t)(s.jobs.PushBatch(t.Context(), make([]client.PushItem, jobs)))
		finish := make(chan struct{})
		w := must(client.New(nc).PriorityQueue("jobs").NewWorker(
			func(context.Context, *client.Job) error {
				<-finish
				return nil
			}, quiet(client.WorkerOptions{Concurrency: jobs, AckWait: 30 * time.Second})))
		done, _ := run(w)
		s.waitUntilLeased(jobs)

		server.frozen.Store(true)
		time.Sleep(11 * time.Second) // the leases are extended each ten seconds
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		go func() { _ = w.Shutdown(ctx) }()
		time.Sleep(time.Second)
		close(finish)

		failsWith(t, "Run", client.ErrUnsettled)(nil, <-done)
		if took := time.Since(begun); took > 8*time.Second { // of the bubble's clock
			t.Errorf("Run took %v to return; want 7 s and at most one more", took)
		}
	})
}
