package client_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

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
