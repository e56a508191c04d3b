package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// shutdown ends what Run started, in the order in which each step depends on the one
// before, and returns why and what went wrong.
func (b *Bridge) shutdown(reason error, running *running, web *http.Server, stop context.CancelFunc) error {
	// From here on /readyz answers 503, so that nobody is sent here any more.
	b.stopping.Store(true)
	deadline, cancel := context.WithTimeout(context.Background(), b.options.ShutdownTimeout)
	defer cancel()

	// Other bridges pass no more pops to this one.
	running.leave()

	// No new requests; those that NATS delivered still reach their lanes.
	err := errors.Join(reason, b.drain(deadline))
	if b.router != nil {
		err = errors.Join(err, b.router.direct.end(deadline))
	}

	// The lanes end when they have run and answered all they have. At the
	// deadline the batches under way are given up and the rest is answered
	// 503, which takes no store and so no time.
	for _, l := range b.lanes {
		l.close()
	}
	if !waitFor(deadline, &running.lanes) {
		err = errors.Join(err, fmt.Errorf("bridge: not all requests were done after %v: the rest was answered 503", b.options.ShutdownTimeout))
	}
	stop()
	running.lanes.Wait()

	// All replies are written; make sure that they are sent before closing.
	err = errors.Join(err, b.disconnect())

	// HTTP last: until here it could be asked how far this is.
	if web != nil {
		_ = web.Close() // nothing depends on an answer that was cut off
	}
	running.others.Wait()
	if b.router != nil {
		// An attempt to connect ends by itself, and nothing depends on it.
		_ = waitFor(deadline, &b.router.direct.connecting)
	}
	return err
}

// waitFor waits for the group, and returns false if ctx ended first.
func waitFor(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// drain ends the subscriptions and waits until everything they had received
// went through the callbacks.
func (b *Bridge) drain(ctx context.Context) error {
	if b.nc == nil {
		return nil
	}
	var drained sync.WaitGroup
	for _, s := range b.subscriptions {
		drained.Add(1)
		done := sync.OnceFunc(drained.Done)
		s.SetClosedHandler(func(string) { done() })
		if err := s.Drain(); err != nil {
			done() // closed with its connection
		}
	}
	if !b.nc.IsConnected() {
		// Nothing comes any more, and nothing could be told to the server.
		return nil
	}
	if !waitFor(ctx, &drained) {
		return errors.New("bridge: NATS did not end the subscriptions in time")
	}
	return nil
}

// flushTimeout bounds the last exchange with NATS.
const flushTimeout = 2 * time.Second

func (b *Bridge) disconnect() error {
	if b.nc == nil {
		return nil
	}
	var err error
	if b.nc.IsConnected() {
		if err = b.nc.FlushTimeout(flushTimeout); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			err = fmt.Errorf("bridge: the last replies may not have been sent: %w", err)
		}
	}
	b.nc.Close()
	<-b.closed
	return err
}
