package faultkv

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Fault is a kind of fault.
type Fault int

// The kinds of faults.
const (
	// None lets a commit pass in a script: see [DB.Next].
	None Fault = iota

	// Delay delays the call by a random time up to Options.MaxDelay.
	Delay

	// Outage fails the call with kv.ErrUnavailable.
	Outage

	// TooOld and Throttled fail the transaction with kv.ErrTooOld and kv.ErrThrottled.
	TooOld
	Throttled

	// Conflict fails the commit with kv.ErrConflict.
	Conflict

	// UnknownLost fails the commit with kv.ErrCommitUnknown and does not make it.
	UnknownLost

	// UnknownMade makes the commit and fails it with kv.ErrCommitUnknown. If the store refuses the
	// commit, its own error is returned.
	UnknownMade

	// UnknownBeforeNext fails the commit with kv.ErrCommitUnknown, and makes it before the next
	// transaction begins. In a serial store it makes it at once.
	UnknownBeforeNext

	// UnknownDuringNext fails the commit with kv.ErrCommitUnknown, and makes it when the next
	// transaction that wrote commits. It is not for serial stores, where that transaction would
	// wait for this one indefinitely.
	UnknownDuringNext

	faults
)

// kinds has the name of each fault, and its error if it fails the call.
var kinds = [faults]struct {
	name string
	err  error
}{
	None:              {"none", nil},
	Delay:             {"delay", nil},
	Outage:            {"outage", kv.ErrUnavailable},
	TooOld:            {"too old", kv.ErrTooOld},
	Throttled:         {"throttled", kv.ErrThrottled},
	Conflict:          {"conflict", kv.ErrConflict},
	UnknownLost:       {"unknown, lost", kv.ErrCommitUnknown},
	UnknownMade:       {"unknown, made", kv.ErrCommitUnknown},
	UnknownBeforeNext: {"unknown, made before next", kv.ErrCommitUnknown},
	UnknownDuringNext: {"unknown, made during next", kv.ErrCommitUnknown},
}

// String returns the name of the fault in messages.
func (f Fault) String() string { return kinds[f].name }

// commitFaults are the faults of the commit of a transaction that wrote.
var commitFaults = []Fault{Delay, Outage, TooOld, Throttled, Conflict,
	UnknownLost, UnknownMade, UnknownBeforeNext, UnknownDuringNext}

// err returns the error of f, nil for None and Delay.
func (f Fault) err() error {
	if err := kinds[f].err; err != nil {
		return fmt.Errorf("injected fault (%v): %w", f, err)
	}
	return nil
}
