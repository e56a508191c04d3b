package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// newQueue returns a new system, and its queue jobs.
func newQueue(t *testing.T) (*testenv.Env, *client.PriorityQueue) {
	t.Helper()
	e := testenv.New(t, testenv.Options{})
	return e, client.New(e.Conn).PriorityQueue("jobs")
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

// comes waits until something is so.
func comes(t testing.TB, what string, is func() bool) {
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
		err = nc.Flush() // messages may come from other connections
	}
	ok(t, err)
	return s
}

// fake answers the requests that match a subject. There is no bridge.
func fake(t testing.TB, subject string, answer func(nc *nats.Conn, m *nats.Msg)) *nats.Conn {
	t.Helper()
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	nc := e.Connect()
	listen(t, nc, subject, func(m *nats.Msg) { answer(nc, m) })
	return nc
}

// leaseOne leases the first item of a queue.
func leaseOne(t *testing.T, q *client.PriorityQueue, options ...client.LeaseOption) *client.Delivery {
	t.Helper()
	d, err := q.LeaseMin(t.Context(), options...)
	ok(t, err)
	return d
}

// pushAsync begins to push an item.
func pushAsync(t *testing.T, p *client.Producer, priority int64, m client.Message, options ...client.PushOption) *client.PushFuture {
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

// between returns a client of queue jobs whose batches of pushes go through a function, which may pass them on to the
// bridge and then has the reply, and which returns what the client is told, nil for nothing. They are numbered from 0.
func between(t *testing.T, e *testenv.Env, on func(n int, pass func() *nats.Msg) *nats.Msg, options ...client.Option) *client.PriorityQueue {
	t.Helper()
	nc, n := e.Connect(), 0
	listen(t, nc, "far.jobs.push.batch", func(m *nats.Msg) {
		reply := on(n, func() *nats.Msg { return e.Request("pq.jobs.push.batch", nil, m.Data) })
		n++
		if reply != nil {
			_ = m.RespondMsg(&nats.Msg{Header: reply.Header, Data: reply.Data}) // else the test has no reply
		}
	})
	return client.New(e.Conn, append(options, client.WithGrammar(must(subjects.New("far", "q"))))...).PriorityQueue("jobs")
}

// refusal is a reply with an error.
func refusal(code subjects.Code) *nats.Msg {
	return &nats.Msg{Header: (&subjects.Error{Code: code, Text: "not now"}).Headers()}
}

// contents removes all items of queue jobs, and returns their values.
func contents(t *testing.T, e *testenv.Env) (values []string) {
	t.Helper()
	q := client.New(e.Conn).PriorityQueue("jobs")
	for {
		items, err := q.PopMinBatch(t.Context(), 1000)
		if err != nil {
			return values
		}
		for _, item := range items {
			values = append(values, string(item.Value))
		}
	}
}
