package client

import (
	"errors"

	"github.com/pqbridge/pqbridge/subjects"
)

// Errors of requests. A reply that says why the request failed comes as an
// [*Error], which is (errors.Is) the one of these that has its code.
var (
	// ErrEmpty is returned by pops and peeks of a queue without items.
	ErrEmpty = errors.New("client: the queue is empty")

	// ErrBadRequest: the request is wrong and would be wrong each time.
	ErrBadRequest = errors.New("client: bad request")

	// ErrTooLarge: the message is larger than the store or the NATS server
	// takes.
	ErrTooLarge = errors.New("client: the message is too large")

	// ErrOverloaded: too many requests are waiting. Try again, slower.
	ErrOverloaded = errors.New("client: overloaded")

	// ErrInternal: a fault of the service or of the stored data.
	ErrInternal = errors.New("client: internal error")

	// ErrUnavailable: the store did not answer in time, or the bridge is
	// shutting down. Try again.
	ErrUnavailable = errors.New("client: unavailable")

	// ErrNoBridge: no bridge listens on the subject. Nothing was done.
	ErrNoBridge = errors.New("client: no bridge")

	// ErrUnknownOutcome: the request may or may not have been carried out,
	// because the reply says so or because none came. Only calls that can
	// change a queue return it.
	ErrUnknownOutcome = errors.New("client: the outcome is unknown")
)

// Error is the error that a bridge replied with.
type Error subjects.Error

// Error implements error.
func (e *Error) Error() string { return (*subjects.Error)(e).Error() }

// Is reports whether target is the variable of this package that stands for
// the error's code and outcome.
func (e *Error) Is(target error) bool {
	if e.Unknown {
		return target == ErrUnknownOutcome
	}
	switch e.Code {
	case subjects.CodeBadRequest:
		return target == ErrBadRequest
	case subjects.CodeNotFound:
		return target == ErrEmpty
	case subjects.CodeTooLarge:
		return target == ErrTooLarge
	case subjects.CodeOverloaded:
		return target == ErrOverloaded
	case subjects.CodeInternal:
		return target == ErrInternal
	case subjects.CodeUnavailable:
		return target == ErrUnavailable
	default:
		return false
	}
}
