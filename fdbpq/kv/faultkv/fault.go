package faultkv

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Fault is a kind of fault.
type Fault int

// The kinds of faults. None is for scripts: see [DB.Next].
const (
	None Fault = iota
	// Delay delays the call by a random time up to Options.MaxDelay.
	Delay
	// Outage fails the call.
	Outage
	// TooOld and Throttled fail the transaction.
	TooOld
	Throttled
	// Conflict fails the commit.
	Conflict
	// UnknownLost fails the commit, which was not made.
	UnknownLost
	// UnknownMade fails the commit, which was made. If the store refuses it, the error is the
	// store's own.
	UnknownMade
	// UnknownBeforeNext fails the commit, which is made before the next transaction begins; in a serial
	// store at once.
	UnknownBeforeNext
	// UnknownDuringNext fails the commit, which is made when the next transaction that wrote
	// commits. Not for serial stores, where that would wait for it indefinitely.
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
