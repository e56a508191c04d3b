package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/subjects"
)

// Errors that replies carry, besides those of packages dispatch, fdbpq, kv and subjects.
var (
	// errBadRequest: the request is wrong and would be wrong every time.
	errBadRequest = errors.New("bad request")
	// errTooLarge: the message could be stored, but not sent in one reply.
	errTooLarge = errors.New("the message is too large")
	// errInternal: a fault of the service or of the stored data.
	errInternal = errors.New("internal error")
	// errLeaseOver: the lease was over before its item could be sent. The item goes back, and the
	// delivery does not count.
	errLeaseOver = fmt.Errorf("%w: the lease was over before its item could be sent: ask again",
		dispatch.ErrUnknownOutcome)
	errNoSchedule = errors.New("no such schedule")
)

// badRequest returns an error that wraps errBadRequest, and what the format wraps.
func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errBadRequest}, args...)...)
}

// ErrSubjectsTaken is what Run returns if another bridge serves the same
// subjects from another store, or in another queue group.
var ErrSubjectsTaken = peers.ErrSubjectsTaken

// wireError is a row of the table between errors and codes.
type wireError struct {
	code    subjects.Code
	unknown bool // the reply says that the outcome is unknown
	errs    []error
}

// wireErrors is the table. The first row that matches an error counts, so errors that
// can wrap others come first.
var wireErrors = []wireError{
	{subjects.CodeOverloaded, false, []error{fdbpq.ErrRate}},
	{subjects.CodeNotFound, false, []error{
		fdbpq.ErrEmpty, fdbpq.ErrNotFound, fdbpq.ErrPaused, errNoSchedule,
	}},
	{subjects.CodeConflict, false, []error{
		fdbpq.ErrLeaseLost, fdbpq.ErrLeased, fdbpq.ErrNotLeased,
		fdbpq.ErrNotDeadLetter, fdbpq.ErrManyRates,
	}},
	{subjects.CodeUnavailable, true, []error{kv.ErrCommitUnknown, dispatch.ErrUnknownOutcome}},
	{subjects.CodeBadRequest, false, []error{
		errBadRequest, schedule.ErrInvalid,
		subjects.ErrPrefix, subjects.ErrQueueName, subjects.ErrVerb, subjects.ErrPriority,
		subjects.ErrKey, subjects.ErrTiming, subjects.ErrOptions, subjects.ErrToken,
		subjects.ErrFrame, subjects.ErrGroup, subjects.ErrWeight,
		fdbpq.ErrQueueName, fdbpq.ErrID, fdbpq.ErrOp, fdbpq.ErrSettings, fdbpq.ErrMaxRecords,
		fdbpq.ErrToken,
	}},
	{subjects.CodeTooLarge, false, []error{
		errTooLarge, subjects.ErrTooManyFrames, fdbpq.ErrMessageTooLarge, kv.ErrTooLarge,
		fdbpq.ErrItemTooLarge,
	}},
	{subjects.CodeOverloaded, false, []error{
		dispatch.ErrOverloaded, fdbpq.ErrMaxLeased, fdbpq.ErrFull,
	}},
	{subjects.CodeInternal, false, []error{errInternal, fdbpq.ErrCorrupt, kv.ErrCorrupt}},
	{subjects.CodeUnavailable, false, []error{
		dispatch.ErrUnavailable, fdbpq.ErrNoRoom, kv.ErrUnavailable, kv.ErrClosed, kv.ErrConflict,
		kv.ErrTooOld, kv.ErrThrottled,
	}},
}

// classify returns the row of an error, with code 500 for one that matches none.
func classify(err error) wireError {
	matches := func(known error) bool { return errors.Is(err, known) }
	for _, row := range wireErrors {
		if slices.ContainsFunc(row.errs, matches) {
			return row
		}
	}
	return wireError{code: subjects.CodeInternal}
}

// failure is an error with the headers of the reply that reports it.
type failure struct {
	subjects.Error
	header nats.Header
}

// failureOf returns the failure of an error.
func failureOf(err error) *failure {
	row := classify(err)
	text := withoutPackages(err.Error())
	told := subjects.Error{Code: row.code, Unknown: row.unknown, Text: text}

	f := &failure{Error: told, header: told.Headers()}
	if lost, ok := errors.AsType[*fdbpq.LostLeases](err); ok {
		f.header[subjects.HeaderLost] = []string{subjects.FormatLost(lost.Lost)}
	}

	return f
}

// withoutPackages removes the names of packages that errors begin with. Clients do not know them.
func withoutPackages(text string) string {
	parts := slices.DeleteFunc(strings.Split(text, ": "), func(part string) bool {
		return part == "fdbpq" || part == "pebblekv" || part == "fdbkv" || part == "kv"
	})
	return strings.Join(parts, ": ")
}

// errNoRoomForItem is told of an item for which the transaction of a request for several had no
// room.
var errNoRoomForItem = fmt.Errorf("%w: there was no room to move it with the others: "+
	"ask for it again", errTooLarge)

// itemFailure returns what is told of one of several items.
func itemFailure(err error) subjects.Failure {
	if errors.Is(err, fdbpq.ErrNoRoom) {
		err = errNoRoomForItem
	}

	f := failureOf(err)
	text := f.Text
	if len(text) > subjects.MaxFailureText {
		text = strings.ToValidUTF8(text[:subjects.MaxFailureText], "")
	}

	return subjects.Failure{Code: f.Code, Text: text}
}

// pageFailure returns the code and the text of an error, the same as those of a reply over NATS.
func pageFailure(err error) (code int, text string) {
	f := failureOf(err)
	return int(f.Code), f.Text
}
