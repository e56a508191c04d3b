package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Errors of requests, besides the errors of packages fdbpq and kv.
var (
	// ErrOverloaded: too many requests are waiting. The request was not run.
	ErrOverloaded = errors.New("overloaded")

	// ErrUnavailable: the store did not answer in time, or the dispatcher is closing. The request
	// was not run.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome: the store did not say whether the batch committed. The request may or may
	// not have been carried out; an item that a pop took goes back to its place.
	ErrUnknownOutcome = errors.New("the outcome is unknown")

	// ErrCancelled: the request was cancelled while it waited.
	ErrCancelled = fmt.Errorf("%w: nobody was there to receive the reply, "+
		"so the request was dropped: send it again", ErrUnavailable)
)

// Errors of Submit when a limit is reached. They are variables so that callers can prepare the
// replies: in a flood, refusing a request must cost less than receiving it.
var (
	ErrTooManyRequests = fmt.Errorf(
		"%w: too many requests are waiting: try again later", ErrOverloaded)
	ErrTooManyBytes = fmt.Errorf(
		"%w: too many bytes of requests are waiting: try again later", ErrOverloaded)
	ErrTooManyWaiters = fmt.Errorf(
		"%w: too many requests wait for items or outcomes: "+
			"try again later, or without waiting", ErrOverloaded)
)

var errClosed = fmt.Errorf("%w: the service is shutting down: try again", ErrUnavailable)

// errOutOfTouch is for requests whose OutOfTouch returned true.
var errOutOfTouch = fmt.Errorf("%w: this bridge has been out of touch with the one that forwarded "+
	"the request, which was not run: try again", ErrUnavailable)

// errSettles is for requests whose time is up while a batch of unknown outcome is not settled.
var errSettles = fmt.Errorf(
	"%w: the store does not answer, and the request got no item: try again", ErrUnavailable)

var errLate = fmt.Errorf("%w: the store does not answer; %s", ErrUnknownOutcome, mayBeDone)

const (
	// mayBeDone is true of every request of unknown outcome.
	mayBeDone = "the request may or may not have been carried out; " +
		"an item that it popped goes back into the queue"
	notRun = "the request was not run: try again"
)

// batchError returns the error that the requests of a failed batch get.
func batchError(err error) error {
	switch {
	case kv.MaybeCommitted(err):
		return fmt.Errorf("%w: %s: %w", ErrUnknownOutcome, mayBeDone, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the store did not answer in time, %s", ErrUnavailable, notRun)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: the service is shutting down, %s", ErrUnavailable, notRun)
	}

	return err
}

// turnError is the error of a request that has waited too long for its turn, since it arrived.
func turnError(since time.Time) error {
	return fmt.Errorf("%w: the request waited %v for its turn and was not run: try again",
		ErrUnavailable, time.Since(since).Round(time.Millisecond))
}

// lateError is the error of a request in a batch that takes too long.
func lateError(ops []fdbpq.Op) error {
	for i := range ops {
		if ops[i].Kind.Writes() {
			return errLate
		}
	}
	return fmt.Errorf("%w: the store did not answer in time: try again", ErrUnavailable)
}

// LimitError means that a request got nothing because max_leased or rate is used up, although it
// has waited, or its acknowledgements are done.
type LimitError struct{ Limit error }

// Error implements error.
func (e LimitError) Error() string { return e.Limit.Error() }

// Unwrap makes it ErrEmpty. To a pop that has waited, the queue might as well be empty, and the
// error of the limit would mean that the request changed nothing.
func (LimitError) Unwrap() error { return fdbpq.ErrEmpty }

// asNothing returns a LimitError for fdbpq.ErrMaxLeased and fdbpq.ErrRate, and any other error as
// it is.
func asNothing(err error) error {
	if errors.Is(err, fdbpq.ErrMaxLeased) || errors.Is(err, fdbpq.ErrRate) {
		return LimitError{err}
	}
	return err
}
