package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// subtest is t.Run in a bubble.
func subtest(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { testenv.Bubble(t, test) })
}

// newClient is client.New for tests without a bubble: no call gives up because the machine is slow.
func newClient(nc *nats.Conn) *client.Client {
	return client.New(nc, client.WithTimeout(testenv.Patience))
}

// newQueue returns a new system, and its queue jobs.
func newQueue(t *testing.T) (*testenv.Env, *client.Queue) {
	t.Helper()
	e := testenv.New(t, testenv.Options{})
	return e, newClient(e.Conn).PriorityQueue("jobs")
}

// ok ends the test if err is not nil.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// succeeds ends the test if a call that it is given has failed.
func succeeds(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		ok(t, err)
	}
}

// failsWith fails the test unless a call that it is given returns this error.
func failsWith(t *testing.T, what string, want error) func(any, error) {
	return func(v any, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v; want %v", what, v, err, want)
		}
	}
}

// waitFor waits until something is so.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if !is() {
			return errors.New("still missing: " + what)
		}
		return nil
	})
}

// listen calls f for each message on a subject that is sent from now on.
func listen(t testing.TB, nc *nats.Conn, subject string, f nats.MsgHandler) *nats.Subscription {
	t.Helper()
	s, err := nc.Subscribe(subject, f)
	if err == nil {
		err = nc.FlushTimeout(testenv.Patience) // messages may come from other connections
	}

	ok(t, err)
	return s
}

// fakeBridge answers the requests that match a subject. There is no bridge.
func fakeBridge(t testing.TB, subject string, answer func(nc *nats.Conn, m *nats.Msg)) *nats.Conn {
	t.Helper()
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	nc := e.Connect()
	listen(t, nc, subject, func(m *nats.Msg) { answer(nc, m) })

	return nc
}

// leaseOne leases the first item of a queue.
func leaseOne(t *testing.T, q *client.Queue, options ...client.LeaseOption) *client.Delivery {
	t.Helper()
	d, err := q.Lease(t.Context(), options...)
	ok(t, err)
	return d
}

// pushAsync begins to push an item.
func pushAsync(t *testing.T, p *client.Producer, priority int64, m client.Message,
	options ...client.PushOption) *client.PushFuture {
	t.Helper()
	f, err := p.PushAsync(t.Context(), priority, m, options...)
	ok(t, err)
	return f
}

// doNothing is the Work of jobs that just end.
func doNothing(context.Context, *client.Job) error { return nil }

// must is for calls that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// intercept returns queue jobs with a function between client and bridge: on gets the batches of
// pushes, numbered from 0. It may pass one on, which returns the bridge's reply. The client gets
// what on returns, nothing for nil.
func intercept(t *testing.T, e *testenv.Env, on func(n int, pass func() *nats.Msg) *nats.Msg,
	options ...client.Option) *client.Queue {
	t.Helper()
	nc, n := e.Connect(), 0
	listen(t, nc, "far.jobs.push.batch", func(m *nats.Msg) {
		reply := on(n, func() *nats.Msg { return e.Request("pq.jobs.push.batch", nil, m.Data) })
		n++

		if reply != nil {
			// If this fails, the test misses the reply.
			_ = m.RespondMsg(&nats.Msg{Header: reply.Header, Data: reply.Data})
		}
	})

	options = append(options, client.WithGrammar(must(subjects.New("far", "q"))))
	return client.New(e.Conn, options...).PriorityQueue("jobs")
}

// errorReply is a reply with an error.
func errorReply(code subjects.Code) *nats.Msg {
	return &nats.Msg{Header: (&subjects.Error{Code: code, Text: "not now"}).Headers()}
}

// popAll removes all items of queue jobs, and returns their values.
func popAll(t *testing.T, e *testenv.Env) (values []string) {
	t.Helper()
	q := newClient(e.Conn).PriorityQueue("jobs")
	for {
		items, err := q.PopBatch(t.Context(), 1000)
		if errors.Is(err, client.ErrEmpty) {
			return values
		}

		ok(t, err)
		for _, item := range items {
			values = append(values, string(item.Value))
		}
	}
}

// workshop is a queue and the workers of a test.
type workshop struct {
	*testing.T
	e    *testenv.Env
	jobs *client.Queue
	dead *client.Queue
}

func newWorkshop(t *testing.T) *workshop {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn, client.WithTimeout(2*time.Second)) // for replies that are lost
	return &workshop{t, e, c.PriorityQueue("jobs"), c.PriorityQueue("jobs-dead")}
}

func (s *workshop) push(values ...string) {
	s.Helper()
	for i, v := range values {
		succeeds(s.T)(s.jobs.Push(s.Context(), int64(i), []byte(v)))
	}
}

func (s *workshop) configure(change client.Settings) {
	s.Helper()
	succeeds(s.T)(s.jobs.Configure(s.Context(), change))
}

// start runs a worker until the test ends, or stop is called, which waits for its end. The jobs
// have to be done by then.
func (s *workshop) start(w *client.Worker) (stop func()) {
	s.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Run(s.Context()) }()

	stop = sync.OnceFunc(func() {
		kill(w) // without waiting for more jobs
		select {
		case err := <-done:
			if err != nil {
				s.Errorf("Run: %v", err)
			}
		case <-time.After(testenv.Patience):
			s.Error("the worker does not stop")
		}
	})

	s.Cleanup(stop)
	return stop
}

// quiet are options of a worker that logs nothing.
func quiet(o client.WorkerOptions) client.WorkerOptions {
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

// waitUntilEmpty waits until all items are gone.
func (s *workshop) waitUntilEmpty() {
	s.Helper()
	testenv.Eventually(s.T, func() error {
		info, err := s.jobs.Info(s.Context())
		if err == nil && info.Ready+info.Leased+info.Delayed > 0 {
			err = fmt.Errorf("%d ready, %d leased, %d delayed", info.Ready, info.Leased,
				info.Delayed)
		}

		return err
	})
}

// waitUntilLeased waits until that many items are leased.
func (s *workshop) waitUntilLeased(n int64) {
	s.Helper()
	testenv.Eventually(s.T, func() error {
		if info, err := s.jobs.Info(s.Context()); err != nil || info.Leased != n {
			return fmt.Errorf("%+v, %v", info, err)
		}
		return nil
	})
}

// record notes the jobs that were begun.
type record struct {
	mu   sync.Mutex
	list []string
}

func (r *record) add(job *client.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprint(string(job.Value), " ", job.Deliveries))
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// overhear returns the requests to priority queues that arrive from now on.
func (s *workshop) overhear() *nats.Subscription {
	s.Helper()
	nc := s.e.Connect()
	all := must(nc.SubscribeSync("pq.>"))
	ok(s.T, nc.Flush())

	return all
}

// run starts a worker. It returns a channel that gets the error of Run, and what ends the context
// of Run.
func run(w *client.Worker) (<-chan error, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), runs{}, true))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return done, stop
}

type runs struct{} // the key of a value in such a context

// kill ends the jobs of a worker at once.
func kill(w *client.Worker) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.Shutdown(ctx) // has no time
}

// warnings receives what a worker logs.
type warnings chan string

func (c warnings) Enabled(context.Context, slog.Level) bool { return true }
func (c warnings) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c warnings) WithGroup(string) slog.Handler            { return c }
func (c warnings) Handle(_ context.Context, r slog.Record) error {
	c <- r.Message
	return nil
}
