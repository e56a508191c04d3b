package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

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
}

// What may have been sent has an unknown outcome, also if the connection was down when the call began.
func TestClosedAfterSending(t *testing.T) {
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
			if err := <-failed; !errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s, sent before the connection was closed: %v", name, err)
			}
		}
	}
}

// Without a connection, and with a timeout that makes no sense, calls say so.
func TestUnusableClients(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Conn
	for name, change := range changes {
		if err := change(t.Context(), client.New(nil)); !errors.Is(err, nats.ErrInvalidConnection) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%s without a connection: %v", name, err)
		}
		for _, d := range []time.Duration{0, -time.Second} {
			if err := change(t.Context(), client.New(nc, client.WithTimeout(d))); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%s with a timeout of %v: %v", name, d, err)
			}
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
