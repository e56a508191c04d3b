package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// connection returns the connection of the subscriptions. If there is none, it returns
// nil and begins to make one.
func (a *affinity) connection() *nats.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.conn == nil && !a.mu.connecting && !a.mu.stopped && time.Since(a.mu.tried) >= affinityPause {
		a.mu.connecting, a.mu.tried = true, time.Now()
		own := a.line
		a.attempts.Go(func() { a.connect(own) })
	}
	return a.mu.conn
}

// connect makes a connection, for which the NATS client may take some seconds per
// server.
func (a *affinity) connect(own *line) {
	// The name predates the type's and is what operators see in the server.
	options := append([]nats.Option{nats.Name(clientName + " direct")}, a.b.options.NATSOptions...)
	options = append(options,
		nats.NoReconnect(),
		nats.RetryOnFailedConnect(false),
		nats.ErrorHandler(a.asyncError),
		nats.ClosedHandler(a.closed),
		own.option,
		(&intake{backlog: a.backlog}).option,
	)
	conn, err := nats.Connect(a.b.options.NATSURL, options...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.connecting = false
	over := own.whole.Err() != nil // stop has been called meanwhile
	if err != nil {
		if !over {
			a.mu.denied = fmt.Errorf("a connection of their own: %w", err)
		}
		return
	}
	if over {
		conn.Close()
	}
	if conn.IsClosed() {
		return
	}
	if len(a.mu.open) == 0 {
		a.mu.empty = make(chan struct{})
	}
	a.mu.conn = conn
	a.mu.open[conn] = struct{}{}
}

func (a *affinity) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	a.b.metrics.natsErrors.Inc()
	a.b.quiet.nats.warn("NATS reports an error on the connection for busy queues", "error", err)
	if errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.mu.denied = err
	}
}

// closed is called once for each connection that was made.
func (a *affinity) closed(conn *nats.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, open := a.mu.open[conn]; !open {
		return // it was closed before connect saw it
	}
	delete(a.mu.open, conn)
	if len(a.mu.open) == 0 {
		close(a.mu.empty)
	}
	if a.mu.conn == conn {
		a.b.quiet.nats.warn("the connection for busy queues has ended", "error", conn.LastError())
		a.forgetAllLocked()
	}
}

// wait returns when all connections and attempts to connect have ended after stop, or
// with an error when ctx ends.
func (a *affinity) wait(ctx context.Context) error {
	if !waitFor(ctx, &a.attempts) {
		return ctx.Err()
	}
	a.mu.Lock()
	empty := a.mu.empty
	a.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
