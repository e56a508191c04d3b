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

// An error says whether the call may have counted, which calls that only read never do: without a
// reply, after a reply that does not know, and if a stream that captures the subjects replies.
func TestOutcomes(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var reply atomic.Pointer[nats.Msg] // nil means none
		nc := fakeBridge(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
			if r := reply.Load(); r != nil {
				_ = nc.PublishMsg(&nats.Msg{ // if this fails, the test misses the reply
					Subject: m.Reply,
					Reply:   r.Reply,
					Header:  r.Header,
					Data:    r.Data,
				})
			}
		})

		c := client.New(nc, client.WithTimeout(20*time.Millisecond))
		q := c.PriorityQueue("jobs")
		reply.Store(&nats.Msg{Reply: "pq.jobs.ack.token", Data: []byte("a")})

		d, err := client.New(nc).PriorityQueue("jobs").Lease(t.Context())
		if err != nil || string(d.Value) != "a" || d.Deliveries != 0 || !d.Until.IsZero() ||
			d.ID != "" {
			t.Fatalf("an item that left no room for headers: %+v, %v", d, err)
		}

		d = c.Delivery(d.AckSubject())

		told := &subjects.Error{
			Code:    subjects.CodeUnavailable,
			Unknown: true,
			Text:    "the store did not say",
		}

		const streamAck = `{"stream":"ALL","seq":1}`

		for what, test := range map[string]struct {
			call    func(context.Context) error
			changes bool   // a queue
			foreign string // a reply that is not that of a bridge, "" if any could be
		}{
			"push": {
				call: func(ctx context.Context) error {
					_, err := q.Push(ctx, 1, nil)
					return err
				},
				changes: true,
				foreign: streamAck,
			},
			"batch": {
				call: func(ctx context.Context) error {
					_, err := q.PushBatch(ctx, make([]client.PushItem, 2))
					return err
				},
				changes: true,
				foreign: `{"queue":"jobs","ids":["a"]}`,
			},
			"pop": {
				call:    func(ctx context.Context) error { _, err := q.Pop(ctx); return err },
				changes: true,
			},
			"lease": {
				call:    func(ctx context.Context) error { _, err := q.Lease(ctx); return err },
				changes: true,
				foreign: streamAck,
			},
			"ack": {
				call:    d.Ack,
				changes: true,
			},
			"nak": {
				call:    func(ctx context.Context) error { err := d.Nak(ctx, 0); return err },
				changes: true,
			},
			"extend": {
				call:    func(ctx context.Context) error { _, err := d.Extend(ctx); return err },
				changes: true,
				foreign: streamAck,
			},
			"next": {
				call:    func(ctx context.Context) error { _, err := d.Next(ctx); return err },
				changes: true,
				foreign: streamAck,
			},
			"configure": {
				call: func(ctx context.Context) error {
					_, err := q.Configure(ctx, client.Settings{MaxItems: 1})
					return err
				},
				changes: true,
				foreign: "+OK",
			},
			"settings": {
				call:    func(ctx context.Context) error { _, err := q.Settings(ctx); return err },
				foreign: "+OK",
			},
			"len": {
				call:    func(ctx context.Context) error { _, err := q.Len(ctx); return err },
				foreign: streamAck,
			},
			"peek": {
				call: func(ctx context.Context) error { _, err := q.Peek(ctx); return err },
			},
		} {
			reply.Store(nil)

			err := test.call(t.Context())

			if errors.Is(err, client.ErrUnknownOutcome) != test.changes ||
				!errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "no reply on pq.jobs.") ||
				!strings.Contains(err.Error(), ": waited 20ms") {
				t.Errorf("%s without a reply: %v", what, err)
			}

			patient, cancel := context.WithTimeout(t.Context(), client.DefaultTimeout)
			reply.Store(&nats.Msg{Header: told.Headers()})

			err = test.call(patient)

			var wire *client.Error
			if !errors.Is(err, client.ErrUnknownOutcome) || errors.Is(err, client.ErrLeaseLost) ||
				!errors.As(err, &wire) || wire.Code != told.Code || !wire.Unknown ||
				wire.Text != told.Text {
				t.Errorf("%s of unknown outcome: %v", what, err)
			}

			reply.Store(&nats.Msg{Data: []byte(test.foreign)})

			err = test.call(patient)

			if test.foreign != "" && (!errors.Is(err, client.ErrBadReply) ||
				errors.Is(err, client.ErrUnknownOutcome) != test.changes) {
				t.Errorf("%s, answered by a stream: %v", what, err)
			}

			cancel()
		}
	})
}

// A call whose context ends returns the error of the context, and its cause.
func TestCauses(t *testing.T) {
	arrived := make(chan struct{}, 1)
	nc := fakeBridge(t, "q.>", func(*nats.Conn, *nats.Msg) { arrived <- struct{}{} })
	q := newClient(nc).FIFOQueue("mail")
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
		_, err := c.PriorityQueue("jobs").Pop(ctx)
		return err
	},
	"batch": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").LeaseBatch(ctx, 2)
		return err
	},
	"wait": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").Lease(ctx, client.Expires(time.Minute),
			client.IdleHeartbeat(time.Minute))
		return err
	},
	"many": func(ctx context.Context, c *client.Client) error {
		_, err := c.PriorityQueue("jobs").PushMany(ctx, make([]client.PushItem, 2))
		return err
	},
}

// A request that was not sent before its connection was closed is an ErrNotSent.
func TestClosedBeforeSending(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, change := range changes {
			e := testenv.New(t, testenv.Options{Stopped: true})
			e.NATS.Start()
			down := make(chan struct{})
			nc := e.Connect(nats.DisconnectErrHandler(func(*nats.Conn, error) { close(down) }),
				nats.ReconnectWait(time.Hour))
			e.NATS.Stop()
			<-down
			failed := make(chan error)
			go func() { failed <- change(t.Context(), client.New(nc)) }()

			nc.Close()

			for when, err := range map[string]error{
				"down and then closed": <-failed,
				"closed":               change(t.Context(), client.New(nc)),
			} {
				if !errors.Is(err, nats.ErrConnectionClosed) ||
					!errors.Is(err, client.ErrNotSent) ||
					errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s, on a connection that is %s: %v", name, when, err)
				}
			}
		}
	})
}

// A request that may have been sent has an unknown outcome, even if the connection was down when
// the call began.
func TestClosedAfterSending(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, change := range changes {
			for _, restart := range []bool{false, true} {
				e := testenv.New(t, testenv.Options{Stopped: true})
				e.NATS.Start()
				silent := e.Connect()
				heard := must(silent.SubscribeSync("pq.>"))
				ok(t, silent.Flush())

				down := make(chan struct{}, 2)
				nc := e.Connect(nats.ReconnectWait(time.Hour),
					nats.DisconnectErrHandler(func(*nats.Conn, error) { down <- struct{}{} }))

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

				failsWith(t, name+", then closed", client.ErrUnknownOutcome)(nil, <-failed)
			}
		}
	})
}

// Without a connection, and with a timeout that makes no sense, calls say so.
func TestUnusableClients(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Conn
	for name, change := range changes {
		err := change(t.Context(), client.New(nil))
		if !errors.Is(err, nats.ErrInvalidConnection) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%s without a connection: %v", name, err)
		}

		for _, d := range []time.Duration{0, -time.Second} {
			err := change(t.Context(), client.New(nc, client.WithTimeout(d)))
			failsWith(t, fmt.Sprintf("%s with timeout %v", name, d), client.ErrBadRequest)(nil, err)
		}
	}

	p := must(client.New(nil).FIFOQueue("mail").NewProducer(client.ProducerOptions{}))
	f, err := p.PushAsync(t.Context(), 0, client.Message{})
	if err == nil {
		_, err = f.Wait(t.Context())
	}
	failsWith(t, "a Producer without a connection", nats.ErrInvalidConnection)(nil, err)

	w := must(client.New(nil).FIFOQueue("mail").NewWorker(doNothing, client.WorkerOptions{}))
	err = w.Run(t.Context())
	failsWith(t, "a Worker without a connection", nats.ErrInvalidConnection)(nil, err)
}
