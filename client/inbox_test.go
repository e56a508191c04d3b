package client_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
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
	nc := fake(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
		beat := &nats.Msg{Subject: m.Reply, Header: nats.Header{subjects.HeaderHeartbeat: {"1"}}}
		for range 600 { // as many as there can be
			_ = nc.PublishMsg(beat) // else the test fails
		}
		for i := range n {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Data: fmt.Append(nil, i)})
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{subjects.HeaderBatchCount: {fmt.Sprint(n)}}})
	})
	small, err := nats.Connect(nc.ConnectedUrl(), nats.SyncQueueLen(1))
	ok(t, err)
	defer small.Close()
	q := client.New(small).PriorityQueue("jobs")
	items, err := q.PopMinBatch(t.Context(), n, client.Expires(time.Hour), client.IdleHeartbeat(time.Hour/600))
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
	e := testenv.New(t, testenv.Options{})
	nc := e.Connect()
	q := client.New(nc).PriorityQueue("jobs")
	pushed(t, client.New(e.Conn).PriorityQueue("jobs"), 1, "a")
	done := async(func() (string, error) {
		items, err := q.PopMinBatch(t.Context(), 2, client.Expires(time.Hour))
		return fmt.Sprint(len(items)), err
	})
	testenv.Eventually(t, func() error { // a pop counts as waiting before it has its first item
		if nc.Stats().InMsgs == 0 {
			return errors.New("no item has arrived")
		}
		return nil
	})
	if err := nc.Flush(); err != nil { // so the pop has it as well
		t.Fatal(err)
	}
	nc.Close()
	got := <-done
	if !errors.Is(got.err, nats.ErrConnectionClosed) || !errors.Is(got.err, client.ErrUnknownOutcome) || got.values != "1" || !strings.Contains(got.err.Error(), "after 1 items") {
		t.Errorf("got %s items, %v", got.values, got.err)
	}
}

// Options out of bounds are for the bridge to refuse.
func TestAbsurdWaits(t *testing.T) {
	_, q := newQueue(t)
	for _, expires := range []time.Duration{math.MinInt64, -time.Hour, math.MaxInt64} {
		for _, beat := range []time.Duration{math.MinInt64, 1, time.Second} {
			if _, err := q.PopMinBatch(t.Context(), math.MaxInt, client.Expires(expires), client.IdleHeartbeat(beat)); err == nil {
				t.Errorf("expires %v, heartbeat %v: no error", expires, beat)
			}
		}
	}
}
