package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// The NATS client keeps what is published while it reconnects, and sends it afterwards, also requests that were given up long
// before: those would take items for nobody. So a request waits until the connection is up, and is published then. What
// was published before the connection was lost, the NATS client does not send again.
//
// The connection may be lost between the look at it and the publishing. Then the request does arrive late. If it was given up
// by then, nobody is subscribed to its inbox, and its items go back: see idleInboxes.

// errAway is why a request was not sent.
var errAway = errors.New("the connection to NATS is away")

// isAway reports whether the connection is down and may come back.
func isAway(nc *nats.Conn) bool {
	status := nc.Status()
	return status == nats.RECONNECTING || status == nats.CONNECTING
}

// awaitConnection returns once the connection is up, or closed. The error says that ctx has ended before.
func (c *Client) awaitConnection(ctx context.Context, m *nats.Msg) error {
	if !isAway(c.nc) {
		return nil
	}
	changes := c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer c.nc.RemoveStatusListener(changes)
	for isAway(c.nc) {
		select {
		case <-changes:
		case <-ctx.Done():
			return unsent(m, fmt.Errorf("%w: %w", errAway, endOf(ctx)))
		}
	}
	return nil
}

// send publishes a request once the connection is up.
func (c *Client) send(ctx context.Context, m *nats.Msg) error {
	for {
		if err := c.awaitConnection(ctx, m); err != nil {
			return err
		}
		err := c.nc.PublishMsg(m)
		if errors.Is(err, nats.ErrReconnectBufExceeded) { // the connection is away again, and keeps nothing
			continue
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return unsent(m, err)
		}
		if err != nil {
			return c.explain(ctx, m, true, err)
		}
		return nil
	}
}

// unsent returns the error of a request that was not sent.
func unsent(m *nats.Msg, err error) error {
	return fmt.Errorf("%w: a request on %s: %w", ErrNotSent, m.Subject, err)
}

// explain returns the error of a request, which writes or only reads, that failed in the NATS client with err.
func (c *Client) explain(ctx context.Context, m *nats.Msg, writes bool, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w on %s", ErrNoBridge, m.Subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: a value of %d bytes, and the NATS server takes %d bytes at most, headers included (%w)",
			ErrTooLarge, len(m.Data), c.nc.MaxPayload(), err)
	case refusedToSend(err):
		return unsent(m, err)
	case ctx.Err() != nil:
		err = endOf(ctx)
	}
	if writes {
		return fmt.Errorf("%w: no reply on %s: %w", ErrUnknownOutcome, m.Subject, err)
	}
	return fmt.Errorf("no reply on %s: %w", m.Subject, err)
}

// refusedToSend reports whether the NATS client refused to send the request.
func refusedToSend(err error) bool {
	for _, refusal := range []error{
		nats.ErrInvalidConnection, nats.ErrHeadersNotSupported, nats.ErrBadSubject,
		nats.ErrBadHeaderMsg, nats.ErrConnectionDraining,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
