package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A worker that has work to do makes one request for each job, and one that has not waits.
func TestWorkerRequests(t *testing.T) {
	s := newWorkshop(t)
	s.push("a", "b", "c")
	heard := s.overhear()
	stop := s.start(must(s.jobs.NewWorker(doNothing,
		client.WorkerOptions{AckWait: 10 * time.Second})))
	var got []string
	for range 5 {
		m, err := heard.NextMsg(testenv.Patience)
		ok(t, err)
		verb := strings.Split(m.Subject, ".")[2]
		got = append(got, fmt.Sprintf("%s, next %t, waits %t", verb, strings.HasPrefix(string(m.Data), "+NXT"), strings.Contains(string(m.Data), "expires")))
	}
	stop()
	pop, next := "pop, next false, waits true", "ack, next true, waits false"
	if want := []string{pop, next, next, next, pop}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}

// Without Prefetch, what is more urgent comes next, even if it is pushed at the last moment.
func TestWorkerOrder(t *testing.T) {
	s := newWorkshop(t)
	s.push("a", "b", "c")
	var r record
	s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		r.add(job)
		if info, err := s.jobs.Info(t.Context()); err != nil || info.Leased != 1 {
			t.Errorf("%s: %d jobs are leased, %v", job.Value, info.Leased, err)
		}
		if string(job.Value) == "b" {
			_, err := s.jobs.Push(t.Context(), -1, []byte("urgent"))
			return err
		}
		return nil
	}, client.WorkerOptions{})))
	s.empty()
	if got, want := r.all(), []string{"a 1", "b 1", "urgent 1", "c 1"}; !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
}

// A worker takes no more than the queue allows, and waits for that without complaint.
func TestWorkerMaxLeased(t *testing.T) {
	s := newWorkshop(t)
	s.configure(client.Settings{MaxLeased: 2})
	s.push("a", "b", "c", "d", "e", "f")
	complaints := make(warnings, 100)
	s.start(must(s.jobs.NewWorker(doNothing,
		client.WorkerOptions{Concurrency: 2, Prefetch: 4, Logger: slog.New(complaints)})))
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
		select {
		case begun <- struct{}{}:
		case <-finish:
		}
		<-finish
		return nil
	}, client.WorkerOptions{Concurrency: 3, Prefetch: 2, Logger: slog.New(complaints)})))
	for waits := true; waits; { // the other one may be faster
		select {
		case <-begun:
			waits = false
		default:
			s.push("g", "h", "i", "j", "k", "l")
		}
	}
	close(finish)
	s.empty()
	if len(complaints) > 0 {
		t.Errorf("a worker said %q", <-complaints)
	}
}

// A closed connection does not come back, so Run ends, also while a job is being done.
func TestWorkerConnectionClosed(t *testing.T) {
	for name, end := range map[string]func(*nats.Conn) error{
		"closed":  func(nc *nats.Conn) error { nc.Close(); return nil },
		"drained": (*nats.Conn).Drain,
	} {
		s := newWorkshop(t)
		s.push("a")
		nc := s.e.Connect()
		w := must(client.New(nc).PriorityQueue("jobs").NewWorker(func(context.Context, *client.Job) error { return end(nc) },
			quiet(client.WorkerOptions{})))
		if err := w.Run(t.Context()); !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrConnectionDraining) {
			t.Errorf("%s: %v", name, err)
		}
		if err := must(client.New(nc).PriorityQueue("jobs").NewWorker(doNothing,
			quiet(client.WorkerOptions{}))).Run(t.Context()); err == nil {
			t.Errorf("%s: a worker ran without a connection", name)
		}
	}
}

// A worker needs no permission but to pop and to acknowledge.
func TestWorkerPermissions(t *testing.T) {
	e := testenv.New(t, testenv.Options{NATS: func(o *server.Options) {
		o.Users = []*server.User{{Username: "all", Password: "all"}, {Username: "worker", Password: "worker", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"pq.*.pop.*", "pq.*.ack.*"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}}
		o.NoAuthUser = "all"
	}})
	s := &workshop{T: t, e: e, jobs: client.New(e.Conn).PriorityQueue("jobs")}
	s.push("a", "b")
	c := client.New(e.Connect(nats.UserInfo("worker", "worker"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})),
		client.WithTimeout(100*time.Millisecond))
	s.start(must(c.PriorityQueue("jobs").NewWorker(doNothing, quiet(client.WorkerOptions{}))))
	s.empty()
}

// The dead letter of a job that panicked says where, even if the panic says a lot.
func TestWorkerPanics(t *testing.T) {
	s := newWorkshop(t)
	s.configure(client.Settings{MaxDeliver: 1})
	s.push("panics", "crashes", "returns a nil pointer", "works")
	worked := make(chan struct{})
	s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		switch string(job.Value) {
		case "panics":
			panic(strings.Repeat("long ", 1000))
		case "crashes":
			return crash(nil)
		case "returns a nil pointer":
			var none *fragile
			return none
		}
		close(worked)
		return nil
	}, quiet(client.WorkerOptions{}))))
	<-worked
	s.empty()
	for _, want := range []string{"TestWorkerPanics.func1 (worker_more_test.go:", "invalid memory address", "client_test.(*fragile).Error"} {
		item, err := s.dead.PopMin(t.Context())
		if err != nil || item.DeadLetter == nil || !strings.Contains(item.DeadLetter.Error, want) || strings.Contains(item.DeadLetter.Error, "gopanic") {
			t.Fatalf("%+v, %v; want %s", item, err, want)
		}
		if string(item.Value) == "crashes" && !strings.Contains(item.DeadLetter.Error, "client_test.crash (worker_more_test.go:") {
			t.Errorf("it does not say where: %s", item.DeadLetter.Error)
		}
	}
}

// fragile is an error whose methods panic if it is nil.
type fragile struct{ text string }

func (f *fragile) Error() string { return f.text }

//go:noinline
func crash(job *client.Job) error { return errors.New(job.Queue) }

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

// However long an error is, the job ends as it says, with the beginning of the text.
func TestWorkerLongErrors(t *testing.T) {
	s := newWorkshop(t)
	s.configure(client.Settings{MaxDeliver: 1})
	s.push("fails", "drops")
	s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		long := strings.Repeat("long ", 1<<20)
		if string(job.Value) == "drops" {
			return client.Drop(long)
		}
		return errors.New(long)
	}, client.WorkerOptions{Logger: slog.New(slog.DiscardHandler)})))
	s.empty()
	for _, value := range []string{"fails", "drops"} {
		item, err := s.dead.PopMin(t.Context())
		if err != nil || item.DeadLetter == nil || string(item.Value) != value ||
			!strings.HasPrefix(item.DeadLetter.Error+item.DeadLetter.Reason, "long ") {
			t.Errorf("%s: %+v, %v", value, item, err)
		}
	}
}

// A worker whose context has ended leases nothing.
func TestWorkerContextHasEnded(t *testing.T) {
	s := newWorkshop(t)
	s.push("a")
	heard := s.overhear()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		w := must(s.jobs.NewWorker(doNothing, quiet(client.WorkerOptions{AckWait: time.Second, Concurrency: 10})))
		ok(t, w.Run(ctx))
	}
	if n, _, err := heard.Pending(); n > 0 || err != nil {
		t.Errorf("%d requests, %v", n, err)
	}
}

// Jobs that were leased ahead go back together when the worker stops, however long NATS takes for each.
func TestWorkerStopsWithoutNATS(t *testing.T) {
	s := newWorkshop(t)
	succeeds(t)(s.jobs.PushBatch(t.Context(), make([]client.PushItem, 101)))
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	jobs := client.New(s.e.Conn, client.WithTimeout(100*time.Millisecond)).PriorityQueue("jobs")
	w := must(jobs.NewWorker(func(context.Context, *client.Job) error {
		begun <- struct{}{}
		<-finish
		return nil
	}, quiet(client.WorkerOptions{Prefetch: 100, AckWait: time.Minute})))
	done := run(w)
	<-begun
	s.untilLeased(101)
	s.e.NATS.Stop()
	w.Stop()
	w.Stop()
	close(finish)
	select {
	case <-done:
	case <-time.After(5 * time.Second): // one after the other they would take 10 s
		t.Error("the worker takes too long to stop")
	}
	s.e.NATS.Start()
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
