package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// request is a call that sends one request.
type request func(context.Context, *client.Queue, *client.Delivery) error

// writes change a queue.
var writes = map[string]request{
	"push": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Push(ctx, 1, nil)
		return err
	},
	"batch": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.PushBatch(ctx, make([]client.PushItem, 2))
		return err
	},
	"pop": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Pop(ctx)
		return err
	},
	"lease": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Lease(ctx)
		return err
	},
	"ack": func(ctx context.Context, _ *client.Queue, d *client.Delivery) error {
		return d.Ack(ctx)
	},
	"nak": func(ctx context.Context, _ *client.Queue, d *client.Delivery) error {
		return d.Nak(ctx, 0)
	},
	"extend": func(ctx context.Context, _ *client.Queue, d *client.Delivery) error {
		_, err := d.Extend(ctx)
		return err
	},
	"next": func(ctx context.Context, _ *client.Queue, d *client.Delivery) error {
		_, err := d.Next(ctx)
		return err
	},
	"configure": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Configure(ctx, client.Settings{MaxItems: 1})
		return err
	},
}

// reads change nothing.
var reads = map[string]request{
	"settings": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Settings(ctx)
		return err
	},
	"len": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Len(ctx)
		return err
	},
	"peek": func(ctx context.Context, q *client.Queue, _ *client.Delivery) error {
		_, err := q.Peek(ctx)
		return err
	},
}

// askFake makes a request, which is answered with the reply, or not at all if that is nil.
func askFake(
	t *testing.T, ask request, reply *nats.Msg, options ...client.Option,
) error {
	t.Helper()
	nc := fakeBridge(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
		if reply != nil {
			_ = m.RespondMsg(reply) // if this fails, the test misses the reply
		}
	})
	c := client.New(nc, options...)
	return ask(t.Context(), c.PriorityQueue("jobs"), c.Delivery("pq.jobs.ack.token"))
}

// Without a reply, nobody knows whether a call that changes a queue has counted.
func TestWriteWithoutReply(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, write := range writes {
			err := askFake(t, write, nil)

			if !errors.Is(err, client.ErrUnknownOutcome) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Without a reply, a call that only reads has failed.
func TestReadWithoutReply(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, read := range reads {
			err := askFake(t, read, nil)

			if errors.Is(err, client.ErrUnknownOutcome) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The error of a request without a reply says where it went and how long the call waited.
func TestErrorWithoutReplySaysWhere(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		err := askFake(t, reads["len"], nil, client.WithTimeout(20*time.Millisecond))

		want := "no reply on pq.jobs.len: waited 20ms"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// A bridge that does not know the outcome says so, and the error has its code and text.
func TestReplyOfUnknownOutcome(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		told := subjects.Error{
			Code:    subjects.CodeUnavailable,
			Unknown: true,
			Text:    "the store did not say",
		}

		for name, write := range writes {
			err := askFake(t, write, &nats.Msg{Header: told.Headers()})

			var wire *client.Error
			if !errors.Is(err, client.ErrUnknownOutcome) || !errors.As(err, &wire) ||
				*wire != client.Error(told) {
				t.Errorf("%s: %+v, want %+v", name, err, told)
			}
		}
	})
}

// streamAck is what a stream replies to a message that it captures.
const streamAck = `{"stream":"ALL","seq":1}`

// If something other than a bridge replies to a call that changes a queue, a bridge may have got
// the request too.
func TestForeignReplyToAWrite(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, foreign := range map[string]string{
			"push":      streamAck,
			"batch":     `{"queue":"jobs","ids":["a"]}`,
			"lease":     streamAck,
			"extend":    streamAck,
			"next":      streamAck,
			"configure": "+OK",
		} {
			err := askFake(t, writes[name], &nats.Msg{Data: []byte(foreign)})

			if !errors.Is(err, client.ErrBadReply) || !errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A call that only reads tells the reply of something other than a bridge.
func TestForeignReplyToARead(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, foreign := range map[string]string{"settings": "+OK", "len": streamAck} {
			err := askFake(t, reads[name], &nats.Msg{Data: []byte(foreign)})

			if !errors.Is(err, client.ErrBadReply) || errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// An item that left no room for headers in the reply can be acknowledged, though it says nothing
// about itself.
func TestLeaseWithoutRoomForHeaders(t *testing.T) {
	nc := fakeBridge(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
		reply := &nats.Msg{Subject: m.Reply, Reply: "pq.jobs.ack.token", Data: []byte("a")}
		_ = nc.PublishMsg(reply) // if this fails, the test misses the reply
	})

	d := leaseOne(t, newClient(nc).PriorityQueue("jobs"))

	if string(d.Value) != "a" || d.AckSubject() != "pq.jobs.ack.token" || d.ID != "" ||
		d.Deliveries != 0 || !d.Until.IsZero() {
		t.Errorf("leased %+v", d)
	}
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
