package kv

import (
	"errors"
	"strings"
)

// Errors of every engine. Engines wrap them with what they know; callers
// compare with errors.Is. The text of an error may reach people who have no
// business with the machine the store is on, so it names no files, hosts or
// the like: see [WithCause].
var (
	// ErrConflict: another transaction wrote what this one had read. Nothing
	// was written. FoundationDB's not_committed (1020).
	ErrConflict = errors.New("kv: conflict with another transaction")

	// ErrTooOld: the transaction was open for too long (about five seconds) to
	// be checked against others. Nothing was written. FoundationDB's
	// transaction_too_old (1007).
	ErrTooOld = errors.New("kv: transaction is too old")

	// ErrThrottled: the store asks to try again later. Nothing was written.
	ErrThrottled = errors.New("kv: the store asks to try again later")

	// ErrCommitUnknown: the commit may have happened, may not have, or may
	// still happen. FoundationDB's commit_unknown_result (1021), and every
	// other end of waiting for a commit that was already under way.
	ErrCommitUnknown = errors.New("kv: the commit may or may not have happened")

	// ErrTooLarge: a key, a value or the transaction is over its limit.
	// Nothing was written.
	ErrTooLarge = errors.New("kv: key, value or transaction is too large")

	// ErrUnavailable: the store cannot be reached, or cannot write, for
	// example because the disk is full. Nothing was written.
	ErrUnavailable = errors.New("kv: the store is unavailable")

	// ErrCorrupt: stored data is damaged, missing or cannot be read. It will be
	// the same the next time, until somebody repairs the store. Nothing was
	// written.
	ErrCorrupt = errors.New("kv: stored data cannot be read")

	// ErrClosed: the database was closed. Nothing was written.
	ErrClosed = errors.New("kv: the database is closed")

	// ErrUsed: the transaction was committed or cancelled before.
	ErrUsed = errors.New("kv: the transaction has ended")
)

// Retryable reports whether err says that nothing was written and that the
// same work may succeed in a new transaction: ErrConflict, ErrTooOld and
// ErrThrottled.
func Retryable(err error) bool {
	if MaybeCommitted(err) {
		return false
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrThrottled)
}

// MaybeCommitted reports whether err leaves open if the transaction committed.
func MaybeCommitted(err error) bool { return errors.Is(err, ErrCommitUnknown) }

// WithCause returns an error that wraps err and cause. Its text is that of err
// and, if there is one, the reason, which is for everybody; the text of cause is
// only for those who run the store: see [Detail].
func WithCause(err error, reason string, cause error) error {
	text := err.Error()
	if reason != "" {
		text += ": " + reason
	}
	return &explained{text: text, err: err, cause: cause}
}

type explained struct {
	text       string
	err, cause error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() []error { return []error{e.err, e.cause} }

// Detail returns the text of err and those of the causes that its text leaves
// out.
func Detail(err error) string {
	var causes []string
	collectCauses(err, &causes)
	if len(causes) == 0 {
		return err.Error()
	}
	return err.Error() + " (" + strings.Join(causes, "; ") + ")"
}

// collectCauses appends the texts of the causes in err that WithCause was given.
func collectCauses(err error, causes *[]string) {
	if e, ok := err.(*explained); ok {
		*causes = append(*causes, Detail(e.cause))
		err = e.err // what the cause leaves out is in its detail
	}
	switch wrapping := err.(type) {
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			collectCauses(inner, causes)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapping.Unwrap() {
			collectCauses(inner, causes)
		}
	}
}
