package bridge

import (
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Errors that replies carry, besides those of packages fdbpq, kv and subjects.
var (
	// ErrBadRequest: the request is wrong and would be wrong every time.
	ErrBadRequest = errors.New("bad request")

	// ErrTooLarge: the message could be stored, but not sent in one reply.
	ErrTooLarge = errors.New("the message is too large")

	// ErrOverloaded: too many requests are waiting. The request was not run.
	ErrOverloaded = dispatch.ErrOverloaded

	// ErrInternal: a fault of the service or of the stored data.
	ErrInternal = errors.New("internal error")

	// ErrUnavailable: the store did not answer in time, or the service is
	// shutting down. The request was not run.
	ErrUnavailable = dispatch.ErrUnavailable

	// ErrUnknownOutcome: the store did not say whether the batch was committed. A push
	// may or may not be in the queue; an item that a pop took goes back to its place.
	ErrUnknownOutcome = dispatch.ErrUnknownOutcome
)

// ErrSubjectsTaken is what Run returns if another bridge serves the same
// subjects from another store, or in another queue group.
var ErrSubjectsTaken = peers.ErrSubjectsTaken

// wireError is a row of the table between errors and codes.
type wireError struct {
	err     error
	code    subjects.Code
	unknown bool // the reply says that the outcome is unknown
}

// wireErrors is the table. The first row that matches an error counts, so errors that
// can wrap others come first.
var wireErrors = []wireError{
	{err: fdbpq.ErrEmpty, code: subjects.CodeNotFound},
	{err: fdbpq.ErrNotFound, code: subjects.CodeNotFound},
	{err: fdbpq.ErrPaused, code: subjects.CodeNotFound},
	{err: fdbpq.ErrLeaseLost, code: subjects.CodeConflict},
	{err: fdbpq.ErrLeased, code: subjects.CodeConflict},
	{err: kv.ErrCommitUnknown, code: subjects.CodeUnavailable, unknown: true},
	{err: ErrUnknownOutcome, code: subjects.CodeUnavailable, unknown: true},

	{err: ErrBadRequest, code: subjects.CodeBadRequest},
	{err: subjects.ErrPrefix, code: subjects.CodeBadRequest},
	{err: subjects.ErrQueueName, code: subjects.CodeBadRequest},
	{err: subjects.ErrVerb, code: subjects.CodeBadRequest},
	{err: subjects.ErrPriority, code: subjects.CodeBadRequest},
	{err: subjects.ErrKey, code: subjects.CodeBadRequest},
	{err: fdbpq.ErrQueueName, code: subjects.CodeBadRequest},
	{err: fdbpq.ErrID, code: subjects.CodeBadRequest},
	{err: fdbpq.ErrOp, code: subjects.CodeBadRequest},
	{err: fdbpq.ErrSettings, code: subjects.CodeBadRequest},
	{err: subjects.ErrTiming, code: subjects.CodeBadRequest},
	{err: subjects.ErrOptions, code: subjects.CodeBadRequest},
	{err: subjects.ErrToken, code: subjects.CodeBadRequest},
	{err: subjects.ErrFrame, code: subjects.CodeBadRequest},
	{err: fdbpq.ErrToken, code: subjects.CodeBadRequest},

	{err: ErrTooLarge, code: subjects.CodeTooLarge},
	{err: subjects.ErrTooManyFrames, code: subjects.CodeTooLarge},
	{err: fdbpq.ErrMessageTooLarge, code: subjects.CodeTooLarge},
	{err: kv.ErrTooLarge, code: subjects.CodeTooLarge},
	{err: fdbpq.ErrItemTooLarge, code: subjects.CodeTooLarge},

	{err: ErrOverloaded, code: subjects.CodeOverloaded},
	{err: fdbpq.ErrMaxLeased, code: subjects.CodeOverloaded},
	{err: fdbpq.ErrFull, code: subjects.CodeOverloaded},

	{err: ErrInternal, code: subjects.CodeInternal},
	{err: fdbpq.ErrCorrupt, code: subjects.CodeInternal},
	{err: kv.ErrCorrupt, code: subjects.CodeInternal},

	{err: ErrUnavailable, code: subjects.CodeUnavailable},
	{err: fdbpq.ErrNoRoom, code: subjects.CodeUnavailable},
	{err: kv.ErrUnavailable, code: subjects.CodeUnavailable},
	{err: kv.ErrClosed, code: subjects.CodeUnavailable},
	{err: kv.ErrConflict, code: subjects.CodeUnavailable},
	{err: kv.ErrTooOld, code: subjects.CodeUnavailable},
	{err: kv.ErrThrottled, code: subjects.CodeUnavailable},
}

// internal is the row for errors that match no other.
var internal = wireError{err: ErrInternal, code: subjects.CodeInternal}

// classify returns the row of an error.
func classify(err error) wireError {
	for _, row := range wireErrors {
		if errors.Is(err, row.err) {
			return row
		}
	}
	return internal
}

// failure is an error with the headers of the reply that reports it.
type failure struct {
	subjects.Error
	header nats.Header // not to be changed
	toPush []byte      // the payload for a push, if it is prepared
}

// payload returns the payload of the reply to a failed push. It is not to be changed.
func (f *failure) payload() []byte {
	if f.toPush != nil {
		return f.toPush
	}
	return f.Payload()
}

// prepared holds the failures of errors that come in floods, because refusing a request
// must cost less than receiving it.
var prepared = map[error]*failure{
	dispatch.ErrTooManyRequests: prepare(dispatch.ErrTooManyRequests),
	dispatch.ErrTooManyBytes:    prepare(dispatch.ErrTooManyBytes),
	dispatch.ErrTooManyWaiters:  prepare(dispatch.ErrTooManyWaiters),
}

func prepare(err error) *failure {
	f := newFailure(err)
	f.toPush = f.Payload()
	return f
}

// failureOf returns the failure of an error; nil for nil.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	if err == dispatch.ErrTooManyRequests || err == dispatch.ErrTooManyBytes || err == dispatch.ErrTooManyWaiters {
		return prepared[err]
	}
	return newFailure(err)
}

// withoutPackages removes the names of packages with which errors begin. Clients do not know them.
func withoutPackages(text string) string {
	parts := slices.DeleteFunc(strings.Split(text, ": "), func(part string) bool {
		return part == "fdbpq" || part == "pebblekv" || part == "fdbkv" || part == "kv"
	})
	return strings.Join(parts, ": ")
}

func newFailure(err error) *failure {
	row := classify(err)
	text := withoutPackages(err.Error())
	told := subjects.Error{Code: row.code, Unknown: row.unknown, Text: text}
	f := &failure{Error: told, header: told.Headers()}
	var lost *fdbpq.LostLeases
	if errors.As(err, &lost) {
		f.header[subjects.HeaderLost] = []string{subjects.FormatLost(lost.Lost)}
	}
	return f
}
