package kv

import "errors"

// Errors of every engine. Engines wrap them with what they know; callers
// compare with errors.Is.
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
