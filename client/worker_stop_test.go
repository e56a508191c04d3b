package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A second Stop gives a job back, and not to the worker's own wait for another one.
func TestSecondStopWithFreeSlots(t *testing.T) {
	for _, o := range []client.WorkerOptions{{Concurrency: 2}, {Concurrency: 4}, {Concurrency: 2, Prefetch: 2}} {
		s := newWorkshop(t)
		s.push("a")
		begun := make(chan struct{})
		o.AckWait = time.Hour
		w := must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}, quiet(o)))
		done := run(w)
		<-begun
		waiting(t, s.e, 1)
		w.Stop()
		w.Stop()
		ok(t, <-done)
		d, err := s.jobs.LeaseMin(t.Context())
		if err != nil || d.Deliveries != 1 {
			t.Errorf("%+v: the job is not back: %+v, %v", o, d, err)
		}
		waiting(t, s.e, 0)
	}
}

// An idle worker that stops ends its wait, and is through with it when Run returns. A job that comes at this moment is not lost.
func TestIdleWorkerStops(t *testing.T) {
	s := newWorkshop(t)
	for i := range 20 {
		var jobs atomic.Int64
		w := must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
			jobs.Add(1)
			return nil
		}, quiet(client.WorkerOptions{AckWait: time.Hour})))
		done := run(w)
		waiting(t, s.e, 1)
		pushed := async(func() (string, error) {
			_, err := s.jobs.Push(t.Context(), 0, nil)
			return "", err
		})
		w.Stop()
		ok(t, <-done)
		waiting(t, s.e, 0)
		if got := <-pushed; got.err != nil {
			t.Fatal(got.err)
		}
		if d, err := s.jobs.LeaseMin(t.Context()); jobs.Load() == 0 && (err != nil || d.Deliveries != 1) {
			t.Fatalf("round %d: the job is neither done nor back: %v", i, err)
		} else if err == nil {
			_ = d.Ack(t.Context()) // else the next round finds it
		}
	}
}

// A bridge that knows no cancel is asked again and again, for no longer than Stop may take.
func TestWorkerWithAnOlderBridge(t *testing.T) {
	s := newWorkshop(t)
	asked := make(chan subjects.PopOptions, 100)
	q := s.relayed(func(m *nats.Msg) *nats.Msg {
		o, err := subjects.ParsePopOptions(m.Data)
		if err != nil {
			return nil // an acknowledgement
		}
		if o.Expires > 0 {
			asked <- o
		}
		if o.ID != "" || o.Cancel != "" {
			return refusal(subjects.CodeBadRequest)
		}
		return nil
	})
	begun := make(chan struct{})
	w := must(q.NewWorker(func(context.Context, *client.Job) error {
		close(begun)
		return nil
	}, quiet(client.WorkerOptions{AckWait: time.Hour})))
	done := run(w)
	for _, want := range []time.Duration{5 * time.Minute, 2 * time.Second} {
		if o := <-asked; o.Expires != want || (o.ID != "") != (want > time.Minute) {
			t.Errorf("asked with %+v, want a wait of %v", o, want)
		}
	}
	s.push("a")
	<-begun
	s.empty()
	w.Stop()
	w.Stop()
	ok(t, <-done)
	waiting(t, s.e, 0)
}

// A worker whose bridge does not confirm any more that it waits asks again. It says so.
func TestWorkerWithoutHeartbeats(t *testing.T) {
	s := newWorkshop(t)
	var asked atomic.Int64
	q := s.relayed(func(m *nats.Msg) *nats.Msg {
		if o, err := subjects.ParsePopOptions(m.Data); err == nil && o.Expires > 0 && asked.Add(1) == 1 {
			return &nats.Msg{Header: nats.Header{subjects.HeaderHeartbeat: {"1"}}} // and nothing more
		}
		return nil
	})
	log := &countLog{Handler: slog.DiscardHandler, n: map[string]int{}}
	w := must(q.NewWorker(doNothing,
		client.WorkerOptions{AckWait: time.Hour, Logger: slog.New(log)}))
	w.SetHeartbeat(100 * time.Millisecond)
	s.start(w)
	waiting(t, s.e, 1)
	s.push("a")
	s.empty()
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.n["cannot lease a job"] != 1 {
		t.Errorf("logged %v", log.n)
	}
}

// An idle worker costs few messages: a heartbeat every five seconds, a request and its end every five minutes.
func TestIdleWorkersAreCheap(t *testing.T) {
	s := newWorkshop(t)
	before := s.e.Conn.Stats()
	messages := func() int {
		now := s.e.Conn.Stats()
		return int(now.InMsgs - before.InMsgs + now.OutMsgs - before.OutMsgs)
	}
	const workers = 20
	for range workers {
		s.start(must(s.jobs.NewWorker(doNothing,
			quiet(client.WorkerOptions{AckWait: time.Minute}))))
	}
	waiting(t, s.e, workers)
	begun, since := messages(), time.Now()
	if begun > 3*workers {
		t.Errorf("%d messages until %d workers waited", begun, workers)
	}
	testenv.Eventually(t, func() error {
		if n := messages() - begun; n < workers {
			return fmt.Errorf("%d heartbeats, want %d", n, workers)
		}
		return nil
	})
	if took := time.Since(since); took < 3*time.Second {
		t.Errorf("%d messages to %d idle workers within %v", workers, workers, took)
	}
}

// Stop while the connection is away does not wait for it.
func TestStopWithoutAConnection(t *testing.T) {
	o := newOutage(t, client.WithTimeout(time.Hour))
	w := must(o.jobs.NewWorker(func(context.Context, *client.Job) error { return errors.New("no job was pushed") },
		quiet(client.WorkerOptions{AckWait: 12 * time.Hour})))
	o.begin()
	done := run(w)
	w.Stop()
	ok(t, <-done)
}
