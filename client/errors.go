package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Errors of requests. A bridge that refuses a request says why in an [*Error]; errors.Is finds the
// variable that stands for its code.
var (
	// ErrEmpty is returned by pops, leases and peeks of a queue without items.
	ErrEmpty = errors.New("the queue is empty")

	// ErrNotFound is returned for the id of an item that is not in the queue, and by Result for a
	// job that is over and not kept.
	ErrNotFound = errors.New("no such item")

	// ErrBadRequest: the request is not valid. Trying again cannot help.
	ErrBadRequest = errors.New("bad request")

	// ErrLeaseLost is returned by acknowledgements of an item that was settled or delivered again.
	// Nothing was done.
	ErrLeaseLost = errors.New("the lease is lost or the item is settled")

	// ErrLeased is returned by Move, and by RedriveItems for an item that is leased.
	ErrLeased = errors.New("the item is leased")

	// ErrJoined is returned by pushes of a member whose joiner does not wait, or not any more.
	ErrJoined = errors.New("no such job waits for others")

	// ErrChain is returned by Result with [Follow] for a chain that branches, or runs again.
	ErrChain = errors.New("the chain of jobs cannot be followed")

	// ErrJoins is returned by Move for a joiner that waits.
	ErrJoins = errors.New("the job waits for others")

	// ErrTooLarge: the message is larger than the store or the NATS server takes, or than the queue
	// may be. A pop returns it if the item exceeds MaxBytes, and a lease if there was no room
	// beside other requests; then the text says to try again.
	ErrTooLarge = errors.New("the message is too large")

	// ErrOverloaded: too many requests are waiting, the queue is full, too many of its items are
	// leased, or its rate is used up. Try again, more slowly.
	ErrOverloaded = errors.New("overloaded")

	// ErrInternal: the service or the stored data is at fault.
	ErrInternal = errors.New("internal error")

	// ErrUnavailable: the store did not answer in time, or the bridge is shutting down. Try again.
	ErrUnavailable = errors.New("unavailable")

	// ErrNoBridge: no bridge is listening on the subject.
	ErrNoBridge = errors.New("no bridge is listening")

	// ErrBadReply: something other than a bridge replied, such as a stream that captures the
	// subject. If the call can change a queue, it comes with ErrUnknownOutcome.
	ErrBadReply = errors.New("the reply is not that of a bridge")

	// ErrNoHeartbeat: the bridge no longer confirms that the call waits, so the bridge or the
	// connection may be gone: see [IdleHeartbeat]. It comes with ErrUnknownOutcome.
	ErrNoHeartbeat = errors.New("no heartbeat")

	// ErrNotSent: the request was certainly not sent, because the connection was down until the
	// context ended, or is closed, or because the NATS server refused it: then it comes with
	// nats.ErrPermissionViolation. PushMany returns it for the items after a failed one, and a
	// Producer for pushes that it had not sent when it was closed. None of these is in the queue.
	ErrNotSent = errors.New("not sent")

	// ErrUnknownOutcome: the request may or may not have been carried out. The bridge said so, or
	// its reply did not arrive. Only calls that can change a queue return it.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
)

// sentinels has the variable that stands for each code.
var sentinels = map[subjects.Code]error{
	subjects.CodeBadRequest:  ErrBadRequest,
	subjects.CodeNotFound:    ErrEmpty,
	subjects.CodeConflict:    ErrLeaseLost,
	subjects.CodeTooLarge:    ErrTooLarge,
	subjects.CodeOverloaded:  ErrOverloaded,
	subjects.CodeInternal:    ErrInternal,
	subjects.CodeUnavailable: ErrUnavailable,
}

// Error is an error that a bridge replied with. If Unknown is set, it is an [ErrUnknownOutcome].
type Error subjects.Error

// replyError returns the error in a reply, or nil if there is none.
func replyError(reply *nats.Msg) error {
	if failure := subjects.ErrorFromHeaders(reply.Header); failure != nil {
		return (*Error)(failure)
	}
	return nil
}

// Error implements error.
func (e *Error) Error() string { return (*subjects.Error)(e).Error() }

// Is reports whether target is the variable of this package that stands for the error's code,
// reason and outcome.
func (e *Error) Is(target error) bool {
	sentinel, known := sentinels[e.Code]
	switch {
	case e.Unknown:
		return target == ErrUnknownOutcome
	case e.Reason == subjects.ReasonLeased:
		sentinel = ErrLeased
	case e.Reason == subjects.ReasonMissing:
		sentinel = ErrNotFound
	case e.Reason == subjects.ReasonJoined:
		sentinel = ErrJoined
	case e.Reason == subjects.ReasonJoins:
		sentinel = ErrJoins
	}
	return known && target == sentinel
}

// badRequest returns an ErrBadRequest of the client itself.
func badRequest(format string, args ...any) error {
	return &Error{Code: subjects.CodeBadRequest, Text: fmt.Sprintf(format, args...)}
}

// wantUTF8 returns an ErrBadRequest for a text that is not UTF-8. JSON would carry another text.
func wantUTF8(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return badRequest("%+.70q is not UTF-8: want text in UTF-8", text)
		}
	}
	return nil
}

// tooLarge returns an ErrTooLarge of the client itself.
func tooLarge(format string, args ...any) error {
	return &Error{Code: subjects.CodeTooLarge, Text: fmt.Sprintf(format, args...)}
}

// problems are texts about bad options.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// err returns an ErrBadRequest that lists the problems, or nil if there are none.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return badRequest("%s", strings.Join(p, "; "))
}

// badReply returns the error of a request that can change a queue and whose reply cannot be read,
// or nil if err is nil.
func badReply(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w: %w", ErrUnknownOutcome, ErrBadReply, err)
}

// notSent returns the error of a request that was not sent because of err.
func notSent(subject string, err error) error {
	return fmt.Errorf("%w: a request on %s: %w", ErrNotSent, subjects.HideTokens(subject), err)
}

// attempted is an error after an attempt that counted, or may have. errors.Is finds all that it
// wraps but ErrNotSent, which would deny that attempt.
type attempted struct{ error }

func (e attempted) Is(target error) bool {
	return target != ErrNotSent && errors.Is(e.error, target)
}

// unknownAfter returns the error of a request whose last attempt failed with err, after one that
// may have counted.
func unknownAfter(err error) error {
	return fmt.Errorf("%w for an earlier attempt; the last one: %w",
		ErrUnknownOutcome, attempted{err})
}

// withoutToken has the text of an error of the NATS client, but hides tokens of leases.
type withoutToken struct{ error }

func (e withoutToken) Error() string { return subjects.HideTokens(e.error.Error()) }
func (e withoutToken) Unwrap() error { return e.error }

// contextEnded has the text of the cause of a context's end. It wraps the context's error too.
type contextEnded struct{ cause, err error }

func endOf(ctx context.Context) error { return contextEnded{context.Cause(ctx), ctx.Err()} }

func (e contextEnded) Error() string   { return e.cause.Error() }
func (e contextEnded) Unwrap() []error { return []error{e.cause, e.err} }
