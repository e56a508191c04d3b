package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A connection whose subscriptions hardly hold a message loses no items, however many
// arrive at once.
func TestBatchesOnASmallConnection(t *testing.T) {
	const n = 1000
	nc := fakeBridge(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
		beat := &nats.Msg{Subject: m.Reply, Header: nats.Header{subjects.HeaderHeartbeat: {"1"}}}
		for range 600 { // as many as there can be
			_ = nc.PublishMsg(beat) // if this fails, so does the test
		}

		for i := range n {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Data: fmt.Append(nil, i)})
		}

		_ = nc.PublishMsg(&nats.Msg{
			Subject: m.Reply,
			Header:  nats.Header{subjects.HeaderBatchCount: {fmt.Sprint(n)}},
		})
	})

	small, err := nats.Connect(nc.ConnectedUrl(), nats.SyncQueueLen(1),
		nats.Timeout(testenv.Patience))
	ok(t, err)
	defer small.Close()
	q := client.New(small).PriorityQueue("jobs")

	items, err := q.PopBatch(t.Context(), n, client.Expires(time.Hour),
		client.IdleHeartbeat(time.Hour/600))

	if len(items) != n || err != nil {
		t.Fatalf("got %d items, %v", len(items), err)
	}

	for i, item := range items {
		if string(item.Value) != fmt.Sprint(i) {
			t.Fatalf("item %d is %q", i, item.Value)
		}
	}
}

// A call that waits returns when its connection is closed, with what had arrived.
func TestWaitOnAConnectionThatCloses(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		nc := e.Connect()
		q := client.New(nc).PriorityQueue("jobs")
		pushOne(t, client.New(e.Conn).PriorityQueue("jobs"), 1, "a")

		done := async(func() (string, error) {
			items, err := q.PopBatch(t.Context(), 2, client.Expires(time.Hour))
			return fmt.Sprint(len(items)), err
		})
		// A pop counts as waiting before it has its first item.
		waitFor(t, "an item", func() bool { return nc.Stats().InMsgs > 0 })

		ok(t, nc.Flush()) // so the pop has it as well

		nc.Close()

		got := <-done
		if got.values != "1" || !errors.Is(got.err, nats.ErrConnectionClosed) ||
			!errors.Is(got.err, client.ErrUnknownOutcome) ||
			!strings.Contains(got.err.Error(), "after 1 items") {
			t.Errorf("got %s items, %v", got.values, got.err)
		}
	})
}

// slowLink is a connection to NATS that holds back what the server says, from its first message on.
type slowLink struct {
	net.Conn
	server *testenv.Server
	until  string // what the client sends to end that

	held, gone        chan struct{}
	holdOnce, endOnce sync.Once
}

// dialSlowly returns a client's connection over a slowLink.
func dialSlowly(t *testing.T, e *testenv.Env, until string) (*nats.Conn, *slowLink) {
	l := &slowLink{
		server: e.NATS,
		until:  until,
		held:   make(chan struct{}),
		gone:   make(chan struct{}),
	}
	return e.Connect(nats.InProcessServer(l)), l
}

func (l *slowLink) InProcessConn() (_ net.Conn, err error) {
	l.Conn, err = l.server.InProcessConn()
	return l, err
}

func (l *slowLink) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("MSG ")) {
		l.holdOnce.Do(func() { close(l.held) })
		<-l.gone
	}

	return n, err
}

func (l *slowLink) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if bytes.Contains(b, []byte(l.until)) {
		l.end()
	}

	return n, err
}

func (l *slowLink) Close() error {
	l.end()
	return l.Conn.Close()
}

func (l *slowLink) end() { l.endOnce.Do(func() { close(l.gone) }) }

// An item that is on its way from NATS when its pop is given up cannot go back, so the pop returns
// it.
func TestItemUnderWayAsItsPopIsGivenUp(t *testing.T) {
	for name, pop := range pops {
		subtest(t, name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{})
			pushOne(t, client.New(e.Conn).PriorityQueue("jobs"), 1, "a")
			nc, link := dialSlowly(t, e, "UNSUB ")
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() (string, error) {
				return pop(ctx, client.New(nc).PriorityQueue("jobs"))
			})
			<-link.held

			cancel()

			wantOutcome(t, "a pop", <-done, nil, "a")
		})
	}
}

// A call whose context has ended returns, even if NATS says nothing any more.
func TestGivenUpWithoutNATS(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	pushOne(t, newClient(e.Conn).PriorityQueue("jobs"), 1, "a")
	nc, link := dialSlowly(t, e, "never sent")
	ctx, cancel := context.WithCancel(t.Context())
	done := async(func() (string, error) {
		return valueOf(newClient(nc).PriorityQueue("jobs").Pop(ctx))
	})
	<-link.held

	cancel()

	got := <-done
	if !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, client.ErrUnknownOutcome) {
		t.Errorf("got %q, %v", got.values, got.err)
	}

	nc.Close()
}
