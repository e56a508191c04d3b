package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// check returns an error if the queue does not support the operation.
func (op *Op) check(l *codec.Layout) error {
	switch op.Kind {
	case OpLen, OpInfo, OpSettings, OpConsumers, OpSchedules, OpSweep:
		return nil
	case OpGet, OpRank, OpRemove, OpMove, OpRelease, OpRedriveItem, OpPurge:
		return op.checkManaging(l)
	case OpConfigure:
		if op.Configure == nil {
			return fmt.Errorf("%w: nothing says what to configure", ErrOp)
		}
		return nil
	case OpSetSource:
		if op.Change == nil {
			return fmt.Errorf("%w: nothing says what becomes of the source", ErrOp)
		}
		return nil
	case OpSetConsumer, OpSetSchedule:
		kind, _ := op.Kind.recordKind()
		if op.Change == nil {
			return fmt.Errorf("%w: nothing says what becomes of the %v", ErrOp, kind)
		}
		return codec.CheckRecord(kind, op.Record)
	case OpPush:
		if size := op.Message.Size(); size > MaxMessageSize {
			return fmt.Errorf("%w: value and headers are %d bytes: want at most %d", ErrMessageTooLarge, size, MaxMessageSize)
		}
		if n := max(len(op.Message.MsgID), len(op.Message.Unique)); n > MaxKey {
			return fmt.Errorf("%w: a message id or unique key of %d bytes: want at most %d", ErrOp, n, MaxKey)
		}
		if err := op.checkGroup(); err != nil {
			return err
		}
		return op.checkTimes()
	case OpRestore:
		if op.Item == nil || l.Fifo && op.Item.ID.Priority != 0 {
			return fmt.Errorf("%w: want the item that a pop took from this queue", ErrOp)
		}
		return nil
	case OpAck, OpNak, OpExtend, OpTerm:
		if (op.Delay < 0 || op.Delay > MaxDelay) && op.Delay != Backoff {
			return fmt.Errorf("%w: a delay of %v: want 0 to %v", ErrOp, op.Delay, MaxDelay)
		}
		return codec.CheckLease(op.Lease)
	case OpPop, OpPeek, OpLease:
		if op.Kind != OpLease || op.Lease != SettingsLease {
			if err := codec.CheckLease(op.Lease); err != nil {
				return err
			}
		}
		if op.End > Back {
			return fmt.Errorf("%w: no end %d", ErrOp, op.End)
		}
		if l.Fifo && op.End == Back {
			return codec.ErrFIFOEnd
		}
		return nil
	default:
		return fmt.Errorf("%w: no operation %d", ErrOp, op.Kind)
	}
}

// checkManaging returns an error if the queue does not support an operation on an item by its id,
// or on all of its items.
func (op *Op) checkManaging(l *codec.Layout) error {
	switch {
	case op.Kind == OpMove && l.Fifo:
		return fmt.Errorf("%w: a FIFO queue has no priorities to move an item to", ErrOp)
	case op.State > Leased:
		return fmt.Errorf("%w: no state %d", ErrOp, op.State)
	case op.Kind == OpPurge:
		return nil
	case op.End > Back:
		return fmt.Errorf("%w: no end %d", ErrOp, op.End)
	case op.Kind == OpRank && l.Fifo && op.End == Back:
		return fmt.Errorf("%w: a FIFO queue is served from its front only", ErrOp)
	case l.Fifo && op.ID.Priority != 0: // its key would be that of another item
		return notFound(&op.ID)
	}
	return nil
}

// checkGroup returns an error if an OpPush has a bad group or weight.
func (op *Op) checkGroup() error {
	values := op.Message.Headers[GroupHeader]
	if op.Weight < 0 || op.Weight > MaxWeight || op.Weight > 0 && values == nil {
		return fmt.Errorf("%w: bad weight %d: want 1 to %d, beside %s", ErrOp, op.Weight, MaxWeight, GroupHeader)
	}
	return codec.CheckGroup(values)
}

// weight is how many items of its group the push puts into a turn.
func (op *Op) weight() int { return max(op.Weight, 1) }

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

// expires returns when the item of a push expires; zero if it does not.
func (op *Op) expires(now time.Time, s *Settings) time.Time {
	switch {
	case op.TTL == Never:
		return time.Time{}
	case op.TTL > 0:
		return codec.Micros(now.Add(op.TTL))
	case !op.Message.Expires.IsZero():
		return codec.Micros(op.Message.Expires)
	case s.TTL > 0:
		return codec.Micros(now.Add(s.TTL))
	}
	return time.Time{}
}

// checkTTL returns an error if an OpPush cannot have this expiry.
func (op *Op) checkTTL() error {
	if op.TTL != Never {
		if err := settings.CheckBounds(op.TTL, MinTTL, MaxTTL); err != nil {
			return fmt.Errorf("%w: it expires after %w", ErrOp, err)
		}
	}
	if at := op.Message.Expires; !at.IsZero() && (at.Unix() < codec.FirstTime/1e6 || at.Unix() >= codec.LastTime/1e6) {
		return fmt.Errorf("%w: it expires at %v: want a time from 2020 on and before 2200", ErrOp, at)
	}
	return nil
}
