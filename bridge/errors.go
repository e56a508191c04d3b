package bridge

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Errors that replies carry, besides those of packages fdbpq, kv and subjects.
var (
	// ErrBadRequest: the request is wrong and would be wrong every time.
	ErrBadRequest = errors.New("bad request")

	// ErrTooLarge: the message could be stored, but not be sent in one reply.
	ErrTooLarge = errors.New("the message is too large")

	// ErrOverloaded: too many requests are waiting. The request was not run.
	ErrOverloaded = errors.New("overloaded")

	// ErrInternal: a fault of the service or of the stored data.
	ErrInternal = errors.New("internal error")

	// ErrUnavailable: the store did not answer in time, or the service is
	// shutting down. The request was not run.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome: the store did not say whether the batch was
	// committed. A push may or may not be in the queue; what a pop would have
	// returned is put back at its place.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
)

// HeaderOutcome tells the two kinds of 503 apart: its value is OutcomeUnknown
// in replies that ErrorFromHeaders turns into ErrUnknownOutcome. Without it a
// request that failed did nothing.
const (
	HeaderOutcome  = subjects.HeaderOutcome
	OutcomeUnknown = subjects.OutcomeUnknown
)

// wireError is a row of the table between errors and codes.
type wireError struct {
	err     error
	code    int
	unknown bool // the reply has HeaderOutcome
}

// wireErrors is the table. From an error to a code the first row that matches
// counts, so those that can wrap others come first. From a code back to an
// error: the client's error is (errors.Is) every error with that code and
// that outcome.
var wireErrors = []wireError{
	{err: fdbpq.ErrEmpty, code: 404},
	{err: kv.ErrCommitUnknown, code: 503, unknown: true},
	{err: ErrUnknownOutcome, code: 503, unknown: true},

	{err: ErrBadRequest, code: 400},
	{err: subjects.ErrPrefix, code: 400},
	{err: subjects.ErrQueueName, code: 400},
	{err: subjects.ErrVerb, code: 400},
	{err: subjects.ErrPriority, code: 400},
	{err: fdbpq.ErrQueueName, code: 400},
	{err: fdbpq.ErrID, code: 400},
	{err: fdbpq.ErrOp, code: 400},

	{err: ErrTooLarge, code: 413},
	{err: fdbpq.ErrMessageTooLarge, code: 413},
	{err: kv.ErrTooLarge, code: 413},

	{err: ErrOverloaded, code: 429},

	{err: ErrInternal, code: 500},
	{err: fdbpq.ErrCorrupt, code: 500},
	{err: kv.ErrCorrupt, code: 500},

	{err: ErrUnavailable, code: 503},
	{err: kv.ErrUnavailable, code: 503},
	{err: kv.ErrClosed, code: 503},
	{err: kv.ErrConflict, code: 503},
	{err: kv.ErrTooOld, code: 503},
	{err: kv.ErrThrottled, code: 503},
}

// internal is the row of errors that are in no other.
var internal = wireError{err: ErrInternal, code: 500}

// classify returns the row of an error.
func classify(err error) wireError {
	for _, row := range wireErrors {
		if errors.Is(err, row.err) {
			return row
		}
	}
	return internal
}

// codes are the codes of the table, in the order of metrics.
var codes = []int{400, 404, 413, 429, 500, 503}

// Error is an error that came in a reply.
type Error struct {
	// Code is 400, 404, 413, 429, 500 or 503; 0 if the reply had none.
	Code int
	// Unknown is true if the request may have been carried out.
	Unknown bool
	// Text says what was wrong and what would be right.
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Code) }

// Is reports whether target has the code and the outcome of e: errors.Is(err,
// fdbpq.ErrEmpty) for 404, errors.Is(err, bridge.ErrOverloaded) for 429.
func (e *Error) Is(target error) bool {
	for _, row := range wireErrors {
		if row.err == target {
			return row.code == e.Code && row.unknown == e.Unknown
		}
	}
	return false
}

// ErrorFromHeaders returns the *Error that the headers of a reply carry, nil
// if the request succeeded.
func ErrorFromHeaders(h nats.Header) error {
	text, code := h.Get(subjects.HeaderError), h.Get(subjects.HeaderErrorCode)
	if text == "" && code == "" {
		return nil
	}
	e := &Error{Text: text, Unknown: h.Get(HeaderOutcome) == OutcomeUnknown}
	e.Code, _ = strconv.Atoi(code) // not a number: not one of our codes either
	return e
}

// refusal is an error with what there is to be said of it. Errors that come in
// floods are made into one in advance, because to refuse a request must cost less
// than to receive it.
type refusal struct {
	error
	code   int
	text   string
	header nats.Header // the other direction of ErrorFromHeaders; not to be changed
}

// refusalOf returns err as a refusal, which it may be already; nil for nil.
func refusalOf(err error) *refusal {
	if err == nil {
		return nil
	}
	if made, ok := err.(*refusal); ok {
		return made
	}
	row := classify(err)
	r := &refusal{error: err, code: row.code, text: err.Error()}
	r.header = nats.Header{
		subjects.HeaderError:     {r.text},
		subjects.HeaderErrorCode: {strconv.Itoa(r.code)},
	}
	if row.unknown {
		r.header[HeaderOutcome] = []string{OutcomeUnknown}
	}
	return r
}

// Unwrap returns the error.
func (r *refusal) Unwrap() error { return r.error }
