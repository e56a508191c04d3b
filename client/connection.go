package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// connection publishes requests only while the NATS connection is up.
//
// While it reconnects, the NATS client buffers what is published and sends it afterwards, even
// requests that were given up long before: those would take items for nobody. So a request waits
// until the connection is up, and is published then. The NATS client does not repeat what it
// published before the connection was lost.
//
// The connection may be lost between the check and the publishing. Then the request does arrive
// late. If it was given up by then, nobody is subscribed to its inbox, and its items go back: see
// inbox.
type connection struct{ nc *nats.Conn }

// errAway is why a request was not sent.
var errAway = errors.New("the connection to NATS is away")

// isAway reports whether the connection is down and may come back.
func isAway(nc *nats.Conn) bool {
	status := nc.Status()
	return status == nats.RECONNECTING || status == nats.CONNECTING
}

// awaitConnection returns nil once the connection is up or closed, and an error if ctx ends before.
// The subject is for the text of the error.
func (c connection) awaitConnection(ctx context.Context, subject string) error {
	if !isAway(c.nc) {
		return nil
	}

	changes := c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer c.nc.RemoveStatusListener(changes)

	for isAway(c.nc) {
		select {
		case <-changes:
		case <-ctx.Done():
			return notSent(subject, fmt.Errorf("%w: %w", errAway, endOf(ctx)))
		}
	}
	return nil
}

// send publishes a request once the connection is up.
func (c connection) send(ctx context.Context, m *nats.Msg) error {
	for {
		if err := c.awaitConnection(ctx, m.Subject); err != nil {
			return err
		}

		err := c.nc.PublishMsg(m)
		switch {
		case errors.Is(err, nats.ErrReconnectBufExceeded): // it is away again, and keeps nothing
			continue
		case errors.Is(err, nats.ErrConnectionClosed):
			return notSent(m.Subject, err)
		case err != nil:
			return c.explain(ctx, m, true, err)
		}
		return nil
	}
}

// explain returns the error of a request that failed in the NATS client with err. Requests that
// only read have no unknown outcome.
func (c connection) explain(ctx context.Context, m *nats.Msg, writes bool, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w on %s", ErrNoBridge, m.Subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: a value of %d bytes, and the NATS server takes %d bytes at most, headers included (%w)",
			ErrTooLarge, len(m.Data), c.nc.MaxPayload(), err)
	case isAny(err, nats.ErrInvalidConnection, nats.ErrHeadersNotSupported, nats.ErrBadSubject,
		nats.ErrBadHeaderMsg, nats.ErrConnectionDraining): // the NATS client refused to send it
		return notSent(m.Subject, err)
	case ctx.Err() != nil:
		err = endOf(ctx)
	}

	if writes {
		return fmt.Errorf("%w: no reply on %s: %w", ErrUnknownOutcome, m.Subject, err)
	}
	return fmt.Errorf("no reply on %s: %w", m.Subject, err)
}

// maxPayload is the server's. Without a connection it is 0, and the request will fail.
func (c connection) maxPayload() int64 {
	if c.nc == nil {
		return 0
	}
	return c.nc.MaxPayload()
}
