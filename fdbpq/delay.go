package fdbpq

import (
	"fmt"
	"time"
)

// An item that is pushed with a delay is held from the start, delayed, under its own id: see
// held.go. It has never been leased, which its record says with no deliveries and firstFence.
// Its place is that of its count, so it comes in before items that are pushed meanwhile.

// firstFence is the fence of an item that was never leased. Any lease has a higher one, or a
// delivery: earlier versions of this package gave it to the first lease as well.
const firstFence = 1

// newDelayed returns the held item for a push with a delay.
func newDelayed(id *ID, m *Message, until time.Time, value []byte) *held {
	// Versions of this package without delayed pushes need a wait.
	return &held{
		id: *id, state: delayed, due: until, value: value,
		history: history{fence: firstFence, wait: DefaultLease, lasting: m.lasts()},
	}
}

// neverLeased reports whether a held item was pushed with a delay and not leased since.
func (h *held) neverLeased() bool {
	return h.state == delayed && h.deliveries == 0 && h.fence == firstFence
}

// checkTimes returns an error if an OpPush cannot have these times.
func (op *Op) checkTimes() error {
	switch {
	case op.Delay < 0 || op.Delay > MaxDelay:
		return fmt.Errorf("%w: a delay of %v: want 0 to %v", ErrOp, op.Delay, MaxDelay)
	case op.Delay > 0 && !op.At.IsZero():
		return fmt.Errorf("%w: a delay of %v and one until %v: want one of them", ErrOp, op.Delay, op.At)
	case op.At.Unix() >= lastTime/1e6:
		return fmt.Errorf("%w: a delay until %v: want a time before 2200", ErrOp, op.At)
	}
	return op.checkTTL()
}

// heldUntil returns until when an item that is pushed now is held back; zero if it is ready.
func (op *Op) heldUntil(now time.Time) time.Time {
	until := micros(now.Add(op.Delay))
	if !op.At.IsZero() {
		until = micros(op.At)
	}
	if until.After(micros(now)) {
		return until
	}
	return time.Time{}
}

// delays reports whether the push may keep its item back.
func (op *Op) delays() bool { return op.Delay > 0 || !op.At.IsZero() }
