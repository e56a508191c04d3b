package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// errEmpty is returned by pop and peek when the queue has no item.
var errEmpty = errors.New("the queue is empty")

// codeNotFound is the error code of a reply that has no item.
const codeNotFound = "404"

// client sends requests to the bridge. It is safe for concurrent use.
type client struct {
	nc      *nats.Conn
	timeout time.Duration
	// usable ends, with the reason, when the server has refused something.
	usable context.Context
	broken context.CancelCauseFunc
}

// close ends the connection and everything that waits on it.
func (c *client) close() {
	c.broken(nats.ErrConnectionClosed)
	c.nc.Close()
}

// request sends m and returns the reply, or the error that the reply carries.
func (c *client) request(m *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(c.usable, c.timeout)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	switch {
	case err == nil:
		return reply, replyError(reply)
	case c.usable.Err() != nil:
		return nil, context.Cause(c.usable)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no bridge is listening on %s: is pqbridge running?", m.Subject)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no reply on %s within %v: it may or may not have been done", m.Subject, c.timeout)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("the value has %d bytes: the NATS server takes %d at most, headers included", len(m.Data), c.nc.MaxPayload())
	default:
		return nil, fmt.Errorf("%s: %w", m.Subject, err)
	}
}

// replyError returns the error a reply carries in its headers, or nil.
func replyError(reply *nats.Msg) error {
	code := reply.Header.Get(subjects.HeaderErrorCode)
	switch code {
	case "":
		return nil
	case codeNotFound:
		return errEmpty
	default:
		return fmt.Errorf("%s (code %s)", reply.Header.Get(subjects.HeaderError), code)
	}
}
