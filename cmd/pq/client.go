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

// headerOutcome is there in replies to requests that failed and may have been
// carried out all the same.
const headerOutcome = "Pq-Outcome"

// unknownError is the error of a request that may have been carried out.
type unknownError struct{ error }

func (e unknownError) Unwrap() error { return e.error }

// tooLarge returns the error of a message that NATS does not take.
func tooLarge(max int) error {
	return fmt.Errorf("the NATS server takes %d bytes at most, headers included", max)
}

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

// request sends m and returns the reply, or the error that the reply carries. The
// error is an [unknownError] unless it is certain that nothing was done.
func (c *client) request(m *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(c.usable, c.timeout)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	switch {
	case err == nil:
		return reply, replyError(reply)
	case c.usable.Err() != nil:
		if cause := context.Cause(c.usable); errors.Is(cause, nats.ErrPermissionViolation) {
			return nil, cause // for the subject: that of the inbox was tried before
		}
		return nil, unknownError{context.Cause(c.usable)}
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no bridge is listening on %s: is pqbridge running?", m.Subject)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, unknownError{fmt.Errorf("no reply on %s within %v", m.Subject, c.timeout)}
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("the value has %d bytes: %w", len(m.Data), tooLarge(int(c.nc.MaxPayload())))
	default:
		return nil, unknownError{fmt.Errorf("%s: %w", m.Subject, err)}
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
	}
	err := fmt.Errorf("%s (code %s)", reply.Header.Get(subjects.HeaderError), code)
	if reply.Header.Get(headerOutcome) != "" {
		return unknownError{err}
	}
	return err
}
