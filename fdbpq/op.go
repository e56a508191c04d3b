package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// OpKind is what an Op does.
type OpKind uint8

// The operations. On a Queue, OpPush enqueues and OpPop dequeues.
const (
	OpPush OpKind = iota + 1
	OpPop
	OpPeek
	OpLen
	// OpLease is OpPop, but the item stays leased until OpAck removes it: it comes back
	// to its old place when the lease is over.
	OpLease
	// OpAck removes a leased item.
	OpAck
	// OpNak gives a leased item back, after Delay. Its token is invalid from then on.
	OpNak
	// OpExtend renews a lease.
	OpExtend
	// OpInfo returns an Info.
	OpInfo
	// OpRestore puts an item that OpPop took, and that nobody received, back to its old
	// place, with its history.
	OpRestore
	// OpTerm gives up a leased item: it moves to the dead-letter queue.
	OpTerm
	// OpSettings returns the settings of the queue.
	OpSettings
	// OpConfigure changes the settings of the queue. It comes before all other operations of
	// its transaction.
	OpConfigure
	// OpGet returns an item, wherever it is.
	OpGet
	// OpRank returns how many items would be served before an item.
	OpRank
	// OpRemove removes an item, wherever it is. With a State, one in another state stays, with
	// ErrNotFound.
	OpRemove
	// OpMove moves an item to the end of another priority, where it has another id. An item that is
	// leased stays where it is, with ErrLeased.
	OpMove
	// OpPurge removes all items at once, however many there are.
	OpPurge
	// OpRelease ends the lease of an item at once, without its token: the item is ready again at
	// its old place, its delivery does not count, and its token is invalid. An item that is not
	// leased stays as it is, with ErrNotLeased.
	OpRelease
	// OpRedriveItem sends one item of a dead-letter queue, ready or delayed, back to the queue that it
	// was in. One that is leased stays where it is, with ErrLeased, and one that is no dead letter,
	// with ErrNotDeadLetter.
	OpRedriveItem
	// OpSweep does what is due in a queue that nobody uses, or not often enough: it brings items
	// back, removes those that have expired and message ids that are over, and moves dead letters.
	// It does more than operations that look at the queue, but no more than one transaction has
	// room for: see Result.Swept.
	OpSweep
	// OpConsumers returns the records of the queue's consumers, in the order of their names.
	OpConsumers
	// OpSetConsumer creates, changes or removes the record of a consumer. The queue itself removes
	// one that has expired: see Record. It comes before all other operations of its transaction but
	// those on settings.
	OpSetConsumer
	// OpSchedules returns the records of the queue's schedules, in the order of their ids.
	OpSchedules
	// OpSetSchedule creates, changes or removes the record of a schedule, as OpSetConsumer does that of
	// a consumer. The item of a schedule is pushed by whichever transaction first looks at the queue
	// once Record.Next is due, together with the next time, so exactly once. One that changes the record
	// looks, too, before the change and, if that makes the schedule due, after it; while more times are
	// due than it has room for, the change fails with ErrNoRoom. Only one with schedule.All, or whose
	// item cannot be pushed, can be removed then.
	OpSetSchedule
	// OpSetSource changes the state of the queue's source, with the pushes that follow it or not at all.
	// One of a transaction can.
	OpSetSource
)

// Writes reports whether the operation can change the queue.
func (k OpKind) Writes() bool {
	return k != OpPeek && k != OpLen && k != OpInfo && k != OpSettings && k != OpConsumers && k != OpSchedules && k != OpGet && k != OpRank
}

// Op is one operation on one queue.
type Op struct {
	Kind OpKind
	// End is for OpPop, OpPeek, OpLease and OpRank.
	End End
	// Follows ties the operation to the one before it, on the same queue: if that failed, this one
	// fails with the same error. So an OpLease that follows an OpAck happens only if that did, and
	// pops that follow each other share MaxBytes. An OpRedriveItem that follows another keeps their order.
	//
	// A chain of pushes is atomic: if one fails, all fail with its error. An OpPush can only follow
	// an OpPush, or an OpSetSource, with which the chain is atomic, too. A chain of OpAcks is atomic, too: if leases are lost, all fail with one
	// LostLeases.
	Follows bool
	// Waits makes an OpPop or OpLease that finds nothing report Result.NextDue.
	Waits bool
	// Count makes an OpPop or OpLease report Result.Ready.
	Count bool
	// Uncounted makes OpNak and OpTerm not count the delivery. Backoff is then no delay.
	Uncounted bool
	// Queue is a *PriorityQueue or a *Queue.
	Queue Target
	// ID names the item of OpGet, OpRank, OpRemove, OpMove, OpRelease and OpRedriveItem.
	ID ID
	// Priority and Message are for OpPush, and Priority for OpMove. A FIFO queue ignores Priority.
	Priority int64
	Message  Message
	// Weight is how many items of its group OpPush puts into a turn, 1 to MaxWeight; 0 means 1. It is
	// for messages with a group, see GroupHeader.
	Weight int
	// Item is for OpRestore: what an OpPop on the same queue returned. It must not be
	// changed.
	Item *Item

	// Lease is the length of the lease of OpLease, MinLease to MaxLease. 0 means Settings.AckWait
	// or, if it follows an OpAck or OpLease, the length of the lease before; of a chain of OpAcks,
	// that of the first. SettingsLease means Settings.AckWait in any case. For OpExtend, 0 means
	// the length that the lease had.
	Lease time.Duration
	// Holder is the name of who takes an OpLease: up to MaxHolder bytes of UTF-8 without control
	// characters, for people who look at the queue. "" means that of the lease before, if it follows an
	// OpAck, and otherwise no name.
	Holder string
	// Token says which lease OpAck, OpNak, OpExtend and OpTerm are about.
	Token Token
	// Delay is how long OpNak keeps the item back, 0 to MaxDelay, or Backoff. For OpPush it is how
	// long the item is out of reach, 0 to MaxDelay; its place in the order is that of an item
	// without delay.
	Delay time.Duration
	// At is until when OpPush keeps the item out of reach, instead of Delay. A time in the past is
	// no delay, and the zero time means Delay.
	At time.Time
	// TTL is after how long the item of OpPush expires, MinTTL to MaxTTL, or Never. 0 means at
	// Message.Expires, or without that as Settings.TTL says.
	TTL time.Duration
	// Reason says why OpNak or OpTerm is made. The DeadLetter has that of OpTerm as its Reason, and
	// that of the last OpNak with one as its Error. Control characters are replaced, and what
	// exceeds MaxNakReason or MaxTermReason is cut off.
	Reason string
	// Configure changes the settings for OpConfigure. It may be called more than once, with
	// the settings that the queue has.
	Configure func(*Settings)
	// Record names the consumer of OpSetConsumer, or the schedule of OpSetSchedule: 1 to MaxRecordName
	// bytes of UTF-8, without dots, spaces, *, > and control characters.
	Record string
	// Dead is messages that go to the dead-letter queue with an OpSetSource, each with the Reason in its
	// DeadLetter.
	Dead []Message
	// Change says for OpSetConsumer, OpSetSchedule and OpSetSource what becomes of the record, of which it gets the value, nil if
	// there is none. It returns the new one, which must not be changed later; an empty one removes the
	// record, and its error fails the operation, and leaves the record as it is. It may be called more
	// than once, with what there is at the time. now is the time of the transaction.
	Change func(old []byte, now time.Time) (value []byte, err error)
	// MaxBytes is the most bytes, as Message.Size counts them, that an OpPop or OpLease and those
	// that follow it return together; 0 means no limit. The first item that exceeds it stays in the
	// queue, with ErrMaxBytes.
	//
	// Whatever it says, a transaction can move about MaxMessageSize bytes to leases, of which an
	// item counts with its first 90,000. One that has no room stays in the queue, with ErrNoRoom.
	MaxBytes int
	// MaxPriorities is the most priorities that an OpInfo returns, half of them from either end. 0
	// means MaxInfoPriorities, which is also the most; NoPriorities means none.
	MaxPriorities int

	// State is the one that the item of an OpRemove must have; AnyState is any of them.
	State ItemState
	// DropHeader says which headers of an item do not come along with OpRedriveItem. nil means all do.
	DropHeader func(name string) bool
}

// Target is a queue: a *PriorityQueue or a *Queue.
type Target interface {
	Layout() *codec.Layout
}

func readOnly(ops []Op) bool { return !anyOp(ops, func(op *Op) bool { return op.Kind.Writes() }) }

func onlyPushes(ops []Op) bool { return !anyOp(ops, func(op *Op) bool { return op.Kind != OpPush }) }

func onlyShrink(ops []Op) bool {
	return !anyOp(ops, func(op *Op) bool {
		switch op.Kind {
		case OpPush, OpConfigure, OpSetConsumer, OpSetSchedule, OpSetSource, OpMove, OpRedriveItem:
			return true
		default:
			return false
		}
	})
}

// anyOp reports whether one of the operations, which are too large to be copied for that, is so.
func anyOp(ops []Op, is func(*Op) bool) bool {
	for i := range ops {
		if is(&ops[i]) {
			return true
		}
	}
	return false
}

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
		if err := settings.CheckHolder(op.Holder); err != nil {
			return fmt.Errorf("%w: %w", ErrOp, err)
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
