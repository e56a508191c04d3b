package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// Calls that may have counted are told from those that did not, and from those that only read: without a reply, after a
// reply that does not know, and after that of a stream that captures the subjects too.
func TestOutcomes(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var reply atomic.Pointer[nats.Msg] // nil means none
		nc := fake(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
			if r := reply.Load(); r != nil {
				_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Reply: r.Reply, Header: r.Header, Data: r.Data}) // else the test has no reply
			}
		})
		c := client.New(nc, client.WithTimeout(20*time.Millisecond))
		q := c.PriorityQueue("jobs")
		reply.Store(&nats.Msg{Reply: "pq.jobs.ack.token", Data: []byte("a")})
		d, err := client.New(nc).PriorityQueue("jobs").LeaseMin(t.Context())
		if err != nil || string(d.Value) != "a" || d.Deliveries != 0 || !d.Until.IsZero() || d.ID != "" {
			t.Fatalf("an item that left no room for headers: %+v, %v", d, err)
		}
		d = c.Delivery(d.AckSubject())

		told := &subjects.Error{Code: subjects.CodeUnavailable, Unknown: true, Text: "the store did not say"}
		for what, test := range map[string]struct {
			call    func(context.Context) error
			changes bool   // a queue
			foreign string // a reply that is not that of a bridge, "" if any could be
		}{
			"push": {func(ctx context.Context) error { _, err := q.Push(ctx, 1, nil); return err }, true, `{"stream":"ALL","seq":1}`},
			"batch": {func(ctx context.Context) error {
				_, err := q.PushBatch(ctx, make([]client.PushItem, 2))
				return err
			}, true, `{"queue":"jobs","ids":["a"]}`},
			"pop":    {func(ctx context.Context) error { _, err := q.PopMin(ctx); return err }, true, ""},
			"lease":  {func(ctx context.Context) error { _, err := q.LeaseMin(ctx); return err }, true, `{"stream":"ALL","seq":1}`},
			"ack":    {d.Ack, true, ""},
			"nak":    {func(ctx context.Context) error { return d.Nak(ctx, 0) }, true, ""},
			"extend": {func(ctx context.Context) error { _, err := d.Extend(ctx); return err }, true, `{"stream":"ALL","seq":1}`},
			"next":   {func(ctx context.Context) error { _, err := d.Next(ctx); return err }, true, `{"stream":"ALL","seq":1}`},
			"configure": {func(ctx context.Context) error {
				_, err := q.Configure(ctx, client.Settings{MaxItems: 1})
				return err
			}, true, "+OK"},
			"settings": {func(ctx context.Context) error { _, err := q.Settings(ctx); return err }, false, "+OK"},
			"len":      {func(ctx context.Context) error { _, err := q.Len(ctx); return err }, false, `{"stream":"ALL","seq":1}`},
			"peek":     {func(ctx context.Context) error { _, err := q.PeekMin(ctx); return err }, false, ""},
		} {
			reply.Store(nil)
			if err := test.call(t.Context()); errors.Is(err, client.ErrUnknownOutcome) != test.changes ||
				!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no reply on pq.jobs.") || !strings.Contains(err.Error(), ": waited 20ms") {
				t.Errorf("%s without a reply: %v", what, err)
			}

			patient, cancel := context.WithTimeout(t.Context(), client.DefaultTimeout)
			reply.Store(&nats.Msg{Header: told.Headers()})
			var wire *client.Error
			if err := test.call(patient); !errors.Is(err, client.ErrUnknownOutcome) || errors.Is(err, client.ErrLeaseLost) ||
				!errors.As(err, &wire) || wire.Code != told.Code || !wire.Unknown || wire.Text != told.Text {
				t.Errorf("%s of unknown outcome: %v", what, err)
			}

			reply.Store(&nats.Msg{Data: []byte(test.foreign)})
			if err := test.call(patient); test.foreign != "" && (!errors.Is(err, client.ErrBadReply) || errors.Is(err, client.ErrUnknownOutcome) != test.changes) {
				t.Errorf("%s, answered by a stream: %v", what, err)
			}
			cancel()
		}
	})
}

// The error of a call whose context ends is that of the context, and its cause.
func TestCauses(t *testing.T) {
	arrived := make(chan struct{}, 1)
	nc := fake(t, "q.>", func(*nats.Conn, *nats.Msg) { arrived <- struct{}{} })
	q := newClient(nc).Queue("mail")
	cause := errors.New("going home")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(cause)
	}()
	for _, when := range []string{"under way", "before"} {
		if _, err := q.Peek(ctx); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// changes are calls that change a queue.
var changes = map[string]func(context.Context, *client.Client) error{
	"push": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").Push(ctx, 1, nil)
		return err
	},
	"pop": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").PopMin(ctx)
		return err
	},
	"batch": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").LeaseMinBatch(ctx, 2)
		return err
	},
	"wait": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").LeaseMin(ctx, client.Expires(time.Minute), client.IdleHeartbeat(time.Minute))
		return err
	},
	"many": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").PushMany(ctx, make([]client.PushItem, 2))
		return err
	},
}

// What was not sent before its connection was closed has not been done, and the error says so.
func TestClosedBeforeSending(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, change := range changes {
			e := testenv.New(t, testenv.Options{Stopped: true})
			e.NATS.Start()
			down := make(chan struct{})
			nc := e.Connect(nats.DisconnectErrHandler(func(*nats.Conn, error) { close(down) }), nats.ReconnectWait(time.Hour))
			e.NATS.Stop()
			<-down
			failed := make(chan error)
			go func() { failed <- change(t.Context(), client.New(nc)) }()
			nc.Close()
			if err := <-failed; !errors.Is(err, nats.ErrConnectionClosed) || !errors.Is(err, client.ErrNotSent) || errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s, on a connection that is down and is then closed: %v", name, err)
			}
			if err := change(t.Context(), client.New(nc)); !errors.Is(err, nats.ErrConnectionClosed) || !errors.Is(err, client.ErrNotSent) || errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s, on a closed connection: %v", name, err)
			}
		}
	})
}

// What may have been sent has an unknown outcome, also if the connection was down when the call began.
func TestClosedAfterSending(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, change := range changes {
			for _, restart := range []bool{false, true} {
				e := testenv.New(t, testenv.Options{Stopped: true})
				e.NATS.Start()
				silent := e.Connect()
				heard, err := silent.SubscribeSync("pq.>")
				if err == nil {
					err = silent.Flush()
				}
				ok(t, err)
				down := make(chan struct{}, 2)
				nc := e.Connect(nats.ReconnectWait(time.Hour), nats.DisconnectErrHandler(func(*nats.Conn, error) { down <- struct{}{} }))
				if restart {
					e.NATS.Stop()
					<-down
				}
				failed := make(chan error)
				go func() { failed <- change(t.Context(), client.New(nc)) }()
				if restart {
					e.NATS.Start()
					testenv.Eventually(t, func() error { return silent.FlushTimeout(time.Second) })
					ok(t, nc.ForceReconnect())
				}
				if _, err := heard.NextMsg(testenv.Patience); err != nil {
					t.Fatal(name, restart, err)
				}
				nc.Close()
				failsWith(t, name+", sent before the connection was closed", client.ErrUnknownOutcome)(nil, <-failed)
			}
		}
	})
}

// Without a connection, and with a timeout that makes no sense, calls say so.
func TestUnusableClients(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Conn
	for name, change := range changes {
		if err := change(t.Context(), client.New(nil)); !errors.Is(err, nats.ErrInvalidConnection) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%s without a connection: %v", name, err)
		}
		for _, d := range []time.Duration{0, -time.Second} {
			failsWith(t, fmt.Sprintf("%s with a timeout of %v", name, d), client.ErrBadRequest)(nil, change(t.Context(), client.New(nc, client.WithTimeout(d))))
		}
	}
	p := must(client.New(nil).Queue("mail").NewProducer(client.ProducerOptions{}))
	f, err := p.PushAsync(t.Context(), 0, client.Message{})
	if err == nil {
		_, err = f.Wait(t.Context())
	}
	if !errors.Is(err, nats.ErrInvalidConnection) {
		t.Errorf("a Producer without a connection: %v", err)
	}
	w := must(client.New(nil).Queue("mail").NewWorker(doNothing, client.WorkerOptions{}))
	failsWith(t, "a Worker without a connection", nats.ErrInvalidConnection)(nil, w.Run(t.Context()))
}
