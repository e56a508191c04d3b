package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// Errors that replies carry, besides those of packages dispatch, fdbpq, kv and subjects.
var (
	// errBadRequest: the request is wrong and would be wrong every time.
	errBadRequest = errors.New("bad request")
	// errTooLarge: the message could be stored, but not sent in one reply.
	errTooLarge = errors.New("the message is too large")
	// errNoRoomForItem: the item did not fit into the transaction of a request for several.
	errNoRoomForItem = fmt.Errorf("%w: there was no room to move it with the others: "+
		"ask for it again", errTooLarge)
	// errNoRoomForReply: the item did not fit into the reply to a get of several.
	errNoRoomForReply = fmt.Errorf("%w: the others left no room for it in the reply: "+
		"get it alone", errTooLarge)
	// errInternal: a fault of the service or of the stored data.
	errInternal = errors.New("internal error")
	// errLeaseOver: the lease was over before its item could be sent. The item goes back, and the
	// delivery does not count.
	errLeaseOver = fmt.Errorf("%w: the lease was over before its item could be sent: ask again",
		dispatch.ErrUnknownOutcome)
	// errCancelled: the client has cancelled the request, which ends as if its time were up.
	errCancelled  = errors.New("the request was cancelled: send it again if you still want an item")
	errNoSchedule = errors.New("no such schedule")
)

// badRequest returns an error that wraps errBadRequest, and what the format wraps.
func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errBadRequest}, args...)...)
}

// wireError is a row of the table between errors and codes.
type wireError struct {
	code    subjects.Code
	reason  subjects.Reason // "" for a code with one meaning
	unknown bool            // the reply says that the outcome is unknown
	errs    []error
}

// wireErrors is the table. The first row that matches an error counts, so errors that
// can wrap others come first.
var wireErrors = []wireError{
	{subjects.CodeOverloaded, subjects.ReasonRate, false, []error{fdbpq.ErrRate}},
	{subjects.CodeNotFound, subjects.ReasonPaused, false, []error{fdbpq.ErrPaused}},
	{subjects.CodeNotFound, subjects.ReasonGroups, false, []error{fdbpq.ErrGroupLimits}},
	{subjects.CodeNotFound, subjects.ReasonEmpty, false, []error{fdbpq.ErrEmpty, errCancelled}},
	{subjects.CodeNotFound, subjects.ReasonMissing, false, []error{
		fdbpq.ErrNotFound, errNoSchedule,
	}},
	{subjects.CodeConflict, subjects.ReasonDone, false, []error{fdbpq.ErrDone, fdbpq.ErrNoValue}},
	{subjects.CodeConflict, subjects.ReasonLost, false, []error{fdbpq.ErrLeaseLost}},
	{subjects.CodeConflict, subjects.ReasonLeased, false, []error{fdbpq.ErrLeased}},
	{subjects.CodeConflict, subjects.ReasonNotLeased, false, []error{fdbpq.ErrNotLeased}},
	{subjects.CodeConflict, subjects.ReasonNotDead, false, []error{fdbpq.ErrNotDeadLetter}},
	{subjects.CodeConflict, subjects.ReasonRates, false, []error{fdbpq.ErrManyRates}},
	{subjects.CodeConflict, subjects.ReasonJoined, false, []error{fdbpq.ErrJoined}},
	{subjects.CodeConflict, subjects.ReasonJoins, false, []error{fdbpq.ErrJoins}},
	{subjects.CodeUnavailable, "", true, []error{kv.ErrCommitUnknown, dispatch.ErrUnknownOutcome}},
	{subjects.CodeBadRequest, "", false, []error{
		errBadRequest, schedule.ErrInvalid,
		subjects.ErrPrefix, subjects.ErrQueueName, subjects.ErrVerb, subjects.ErrPriority,
		subjects.ErrKey, subjects.ErrTiming, subjects.ErrOptions, subjects.ErrToken,
		subjects.ErrFrame, subjects.ErrGroup, subjects.ErrWeight, subjects.ErrJoin,
		fdbpq.ErrQueueName, fdbpq.ErrID, fdbpq.ErrOp, fdbpq.ErrSettings, fdbpq.ErrMaxRecords,
		fdbpq.ErrToken,
	}},
	{subjects.CodeTooLarge, subjects.ReasonMaxBytes, false, []error{fdbpq.ErrMaxBytes}},
	{subjects.CodeTooLarge, subjects.ReasonRoom, false, []error{
		errNoRoomForItem, errNoRoomForReply, fdbpq.ErrNoRoomForItem,
	}},
	{subjects.CodeTooLarge, subjects.ReasonSize, false, []error{
		errTooLarge, subjects.ErrTooManyFrames, fdbpq.ErrMessageTooLarge, kv.ErrTooLarge,
		fdbpq.ErrItemTooLarge,
	}},
	{subjects.CodeOverloaded, subjects.ReasonBusy, false, []error{dispatch.ErrOverloaded}},
	{subjects.CodeOverloaded, subjects.ReasonLimit, false, []error{fdbpq.ErrMaxLeased}},
	{subjects.CodeOverloaded, subjects.ReasonFull, false, []error{fdbpq.ErrFull}},
	{subjects.CodeInternal, "", false, []error{errInternal, fdbpq.ErrCorrupt, kv.ErrCorrupt}},
	{subjects.CodeUnavailable, "", false, []error{
		dispatch.ErrUnavailable, fdbpq.ErrNoRoom, fdbpq.ErrManyGroups, kv.ErrUnavailable,
		kv.ErrClosed, kv.ErrConflict, kv.ErrTooOld, kv.ErrThrottled,
	}},
}

// classify returns the row of an error, with code 500 for one that matches none.
func classify(err error) wireError {
	matches := func(known error) bool { return errors.Is(err, known) }
	for _, row := range wireErrors {
		if !slices.ContainsFunc(row.errs, matches) {
			continue
		}
		if nothing, ok := errors.AsType[dispatch.LimitError](err); ok {
			row.reason = classify(nothing.Limit).reason
		}
		return row
	}
	// Nobody has said what that meant for the request: it may have been done.
	if isTimeOver(err) {
		return wireError{code: subjects.CodeUnavailable, unknown: true}
	}
	return wireError{code: subjects.CodeInternal}
}

// isTimeOver reports whether err is due to the end of a context.
func isTimeOver(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Failure returns what a reply says about an error.
func Failure(err error) *subjects.Error {
	row := classify(err)
	return &subjects.Error{
		Code: row.code, Reason: row.reason, Unknown: row.unknown,
		Text: forClients(err.Error()),
	}
}

// failureHeaders returns the headers of a reply that says f about an error.
func failureHeaders(f *subjects.Error, err error) nats.Header {
	h := f.Headers()
	if lost, ok := errors.AsType[*fdbpq.LostLeases](err); ok {
		h[subjects.HeaderLost] = []string{subjects.FormatNumbers(lost.Lost)}
		setNumbers(h, subjects.HeaderDone, lost.Done)
	}
	return h
}

// setNumbers sets a header to the numbers of leases, unless there are none.
func setNumbers(h nats.Header, name string, leases []int) {
	if len(leases) > 0 {
		h[name] = []string{subjects.FormatNumbers(leases)}
	}
}

// unspoken are the parts of errors that mean nothing to clients: names of packages, and how Go says
// that time is over.
var unspoken = []string{
	"fdbpq", "pebblekv", "fdbkv", "kv",
	context.DeadlineExceeded.Error(), context.Canceled.Error(),
}

// forClients removes from the text of an error what clients do not know.
func forClients(text string) string {
	parts := slices.DeleteFunc(strings.Split(text, ": "), func(part string) bool {
		return slices.Contains(unspoken, part)
	})
	return cmp.Or(strings.Join(parts, ": "), "the store did not answer in time")
}

// itemFailure returns the error of one of several items, as its client hears it.
func itemFailure(err error) subjects.Failure {
	if errors.Is(err, fdbpq.ErrNoRoom) {
		err = errNoRoomForItem
	}

	f := Failure(err)
	if len(f.Text) > subjects.MaxFailureText {
		f.Text = strings.ToValidUTF8(f.Text[:subjects.MaxFailureText], "")
	}

	return subjects.Failure{Code: f.Code, Reason: f.Reason, Text: f.Text}
}

// isNotFound reports whether a pop ended with code 404: because there was nothing, not because of a
// limit.
func isNotFound(err error) bool {
	return classify(err).code == subjects.CodeNotFound
}
