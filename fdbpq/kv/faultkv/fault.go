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
	// Outage fails the call with kv.ErrUnavailable.
	Outage
	// TooOld fails the transaction with kv.ErrTooOld.
	TooOld
	// Throttled fails the transaction with kv.ErrThrottled.
	Throttled
	// Conflict fails the commit with kv.ErrConflict.
	Conflict
	// UnknownLost fails the commit with kv.ErrCommitUnknown; it was not made.
	UnknownLost
	// UnknownMade fails the commit with kv.ErrCommitUnknown; it was made. If the
	// store refuses the commit its own error is returned.
	UnknownMade
	// UnknownBeforeNext fails the commit with kv.ErrCommitUnknown; it is made
	// before the next transaction begins.
	UnknownBeforeNext
	// UnknownDuringNext fails the commit with kv.ErrCommitUnknown; it is made when the
	// next transaction that wrote commits. Not for serial stores, where the next
	// transaction would wait for it indefinitely.
	UnknownDuringNext

	faults
)

func (f Fault) String() string {
	names := [faults]string{"none", "delay", "outage", "too old", "throttled", "conflict", "unknown, lost",
		"unknown, made", "unknown, made before next", "unknown, made during next"}
	if f < 0 || f >= faults {
		return fmt.Sprintf("fault %d", int(f))
	}
	return names[f]
}

// commitFaults are the faults of the commit of a transaction that wrote.
var commitFaults = []Fault{Delay, Outage, TooOld, Throttled, Conflict,
	UnknownLost, UnknownMade, UnknownBeforeNext, UnknownDuringNext}

// err returns the error of f, nil for None and Delay.
func (f Fault) err() error {
	var err error
	switch f {
	case None, Delay:
		return nil
	case Outage:
		err = kv.ErrUnavailable
	case TooOld:
		err = kv.ErrTooOld
	case Throttled:
		err = kv.ErrThrottled
	case Conflict:
		err = kv.ErrConflict
	default:
		err = kv.ErrCommitUnknown
	}
	return fmt.Errorf("injected fault (%v): %w", f, err)
}
