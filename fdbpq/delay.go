package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// checkTimes returns an error if an OpPush cannot have these times.
func (op *Op) checkTimes() error {
	switch {
	case op.Delay < 0 || op.Delay > MaxDelay:
		return fmt.Errorf("%w: a delay of %v: want 0 to %v", ErrOp, op.Delay, MaxDelay)
	case op.Delay > 0 && !op.At.IsZero():
		return fmt.Errorf("%w: a delay of %v and one until %v: want one of them", ErrOp, op.Delay, op.At)
	case op.At.Unix() >= codec.LastTime/1e6:
		return fmt.Errorf("%w: a delay until %v: want a time before 2200", ErrOp, op.At)
	}
	return op.checkTTL()
}

// heldUntil returns until when an item that is pushed now is held back; zero if it is ready.
func (op *Op) heldUntil(now time.Time) time.Time {
	until := codec.Micros(now.Add(op.Delay))
	if !op.At.IsZero() {
		until = codec.Micros(op.At)
	}
	if until.After(codec.Micros(now)) {
		return until
	}
	return time.Time{}
}

// delays reports whether the push may keep its item back.
func (op *Op) delays() bool { return op.Delay > 0 || !op.At.IsZero() }
