package kv

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of every engine. Engines wrap them with details; callers compare with
// errors.Is. The text of an error may reach people without access to the machine that
// holds the store, so it names no files or hosts: see [WithCause].
var (
	// ErrConflict: another transaction wrote what this one had read. Nothing
	// was written. FoundationDB's not_committed (1020).
	ErrConflict = errors.New("kv: conflict with another transaction")

	// ErrTooOld: the transaction was open for too long (about five seconds) to be checked against
	// others. Nothing was written. FoundationDB's transaction_too_old (1007).
	ErrTooOld = errors.New("kv: transaction is too old")

	// ErrThrottled: the store asks to try again later. Nothing was written.
	ErrThrottled = errors.New("kv: the store asks to try again later")

	// ErrCommitUnknown: the commit may have happened, may not have, or may still
	// happen. FoundationDB's commit_unknown_result (1021), and any other reason to
	// stop waiting for a commit that has started.
	ErrCommitUnknown = errors.New("kv: the commit may or may not have happened")

	// ErrTooLarge: a key, a value or the transaction is over its limit. Nothing was written.
	ErrTooLarge = errors.New("kv: key, value or transaction is too large")

	// ErrUnavailable: the store cannot be reached, or cannot write, for
	// example because the disk is full. Nothing was written.
	ErrUnavailable = errors.New("kv: the store is unavailable")

	// ErrCorrupt: stored data is damaged, missing or cannot be read. Trying again does
	// not help; somebody has to repair the store. Nothing was written.
	ErrCorrupt = errors.New("kv: stored data cannot be read")

	// ErrClosed: the database was closed. Nothing was written.
	ErrClosed = errors.New("kv: the database is closed")

	// ErrUsed: the transaction was already committed or cancelled.
	ErrUsed = errors.New("kv: the transaction has ended")
)

// Retryable reports whether err says that nothing was written and that the same work
// may succeed in a new transaction: ErrConflict, ErrTooOld and ErrThrottled.
func Retryable(err error) bool {
	if MaybeCommitted(err) {
		return false
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrThrottled)
}

// MaybeCommitted reports whether the transaction may have committed despite err.
func MaybeCommitted(err error) bool { return errors.Is(err, ErrCommitUnknown) }

// WithCause returns an error that wraps err and cause. Its text is that of err and, if
// not empty, the reason, which anybody may see. The text of cause is for those who run
// the store: see [Detail].
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

// Detail returns the text of err with those of the causes it hides.
func Detail(err error) string {
	var causes []string
	collectCauses(err, &causes)
	if len(causes) == 0 {
		return err.Error()
	}
	return err.Error() + " (" + strings.Join(causes, "; ") + ")"
}

// collectCauses appends the texts of the causes that WithCause put into err.
func collectCauses(err error, causes *[]string) {
	if e, ok := err.(*explained); ok {
		*causes = append(*causes, Detail(e.cause))
		err = e.err // what the cause hides is in its Detail
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

// OptionError says what is wrong with one field of a package's Options. Engines and the packages
// above return it from Validate, so that a program can name the setting the field came from.
type OptionError struct {
	Package string // of the Options
	Field   string
	Value   any    // as it was set, without secrets
	Want    string // what is allowed
}

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: %s is %v: want %s", e.Package, e.Field, e.Value, e.Want)
}
