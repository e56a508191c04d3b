package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// workshop is a queue and the workers of a test.
type workshop struct {
	*testing.T
	e    *testenv.Env
	jobs *client.PriorityQueue
	dead *client.PriorityQueue
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

// start runs a worker until the test ends, or stop is called, which waits for its end. The jobs have to be
// done by then.
func (s *workshop) start(w *client.Worker) (stop func()) {
	s.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Run(s.Context()) }()
	stop = sync.OnceFunc(func() {
		w.Stop()
		w.Stop() // without waiting for more jobs
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

// empty waits until all items are gone.
func (s *workshop) empty() {
	s.Helper()
	testenv.Eventually(s.T, func() error {
		info, err := s.jobs.Info(s.Context())
		if err == nil && info.Ready+info.Leased+info.Delayed > 0 {
			err = fmt.Errorf("%d ready, %d leased, %d delayed", info.Ready, info.Leased, info.Delayed)
		}
		return err
	})
}

// untilLeased waits until that many items are leased.
func (s *workshop) untilLeased(n int64) {
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

// run starts a worker, and returns what says that Run has returned.
func run(w *client.Worker) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Run(context.Background()) }()
	return done
}

// warnings are those of a worker.
type warnings chan string

func (c warnings) Enabled(context.Context, slog.Level) bool { return true }
func (c warnings) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c warnings) WithGroup(string) slog.Handler            { return c }
func (c warnings) Handle(_ context.Context, r slog.Record) error {
	c <- r.Message
	return nil
}

// countLog counts messages.
type countLog struct {
	slog.Handler
	mu sync.Mutex
	n  map[string]int
}

func (l *countLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n[r.Message]++
	return nil
}

func (l *countLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *countLog) Enabled(context.Context, slog.Level) bool { return true }
