package fdbpq

import (
	"cmp"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// Op is one operation on one queue.
type Op struct {
	Kind OpKind
	// End is for OpPop, OpPeek, OpLease and OpRank.
	End End
	// Follows ties the operation to the one before it, on the same queue, and fails it with the
	// error of that one.
	//
	//	OpPush after OpPush or OpSetSource  all or nothing: all fail with the first error
	//	OpAck after OpAck                   all or nothing: a lost lease fails all: LostLeases
	//	OpLease after OpAck                 only if all acknowledgements of the chain succeeded
	//	OpPop after OpPop                   they share MaxBytes
	//	OpLease after OpLease               the same
	//	OpRedriveItem after OpRedriveItem   they keep their order
	//
	// An OpPush cannot follow anything else.
	Follows bool
	// Waits makes an OpPop or OpLease that finds nothing report Result.NextDue.
	Waits bool
	// Count makes an OpPop or OpLease report Result.Ready.
	Count bool
	// NoValue makes an OpGet leave out the value of its item, and the headers of a finished job. It
	// does not read them either if they are long.
	NoValue bool
	// Uncounted makes OpNak and OpTerm not count the delivery. Backoff is then no delay.
	Uncounted bool
	// Queue is a *PriorityQueue or a *Queue.
	Queue Target
	// ID names the item of OpGet, OpRank, OpRemove, OpMove, OpRelease and OpRedriveItem: the id of
	// its job, which leads to wherever the job is now, or the place of the item.
	ID ID
	// AtPlace says that ID is a place, and leads nowhere else: the operation is about the item
	// there, or the job that was acknowledged there and is kept; if the job has left the place it
	// fails with ErrNotFound. So it can be repeated, and never hits a later life of the job.
	AtPlace bool
	// Priority is for OpPush and OpMove. A FIFO queue ignores it.
	Priority int64
	// Message is for OpPush. An OpGet with a MsgID returns the item of the push with that MsgID,
	// within Settings.DuplicateWindow; then ID must be zero.
	Message Message
	// MemberOf makes the item of an OpPush a member of the joiner that another OpPush adds: the one
	// so many places before it in its chain, or in Report.Next. 0 is none: see Message.Joiner.
	MemberOf int
	// Parent is for an OpPush in Report.Next: which OpAck of the chain pushes it, counted from 0.
	Parent int
	// Weight is how many items of its group OpPush puts into a turn, 1 to MaxWeight; 0 means 1. It
	// is for messages with a group: see GroupHeader.
	Weight int
	// Item is for OpRestore: what an OpPop on the same queue returned, unchanged.
	Item *Item

	// Lease is the length of the lease of OpLease, MinLease to MaxLease. 0 means the length of the
	// lease before, if the OpLease follows an OpLease or a chain of OpAcks, whose first decides;
	// otherwise Settings.AckWait. SettingsLease means Settings.AckWait in any case. For OpExtend, 0
	// means the length that the lease had.
	Lease time.Duration
	// Holder is the name of who takes an OpLease, for people who look at the queue: up to MaxHolder
	// bytes of UTF-8 without control characters. "" means the holder of the lease before, if the
	// OpLease follows one as described at Lease, and no name otherwise.
	Holder string
	// Token says which lease OpAck, OpNak, OpExtend and OpTerm are about.
	Token Token
	// Report is what the holder of the lease says of its job with an OpAck or OpExtend; nil is
	// nothing.
	Report *Report
	// Delay is how long OpNak keeps the item back, 0 to MaxDelay, or Backoff. For OpPush it is how
	// long the item is out of reach, 0 to MaxDelay; its place in the order is the same as without a
	// delay.
	Delay time.Duration
	// RetryDelay is what Backoff means for an OpNak of a queue without a backoff: this delay after
	// the first delivery, doubled with each further one, up to the larger of a minute and the delay
	// itself. 0, the default, is no delay; the most is MaxDelay. It needs Backoff as the Delay, and
	// a delivery that counts.
	RetryDelay time.Duration
	// At is until when OpPush keeps the item out of reach, instead of Delay. A time in the past is
	// no delay, and the zero time means Delay.
	At time.Time
	// TTL is after how long the item of OpPush expires, MinTTL to MaxTTL, or Never. 0 means at
	// Message.Expires or, without that, as Settings.TTL says.
	TTL time.Duration
	// Reason says why OpNak or OpTerm is made. An OpTerm gives it to the DeadLetter as Reason, and
	// the last OpNak with one as Error. Control characters are replaced, and what exceeds
	// MaxNakReason or MaxTermReason bytes is cut off.
	Reason string
	// Configure changes the settings for OpConfigure. It gets the present settings, and may be
	// called more than once.
	Configure func(*Settings)
	// Record names the consumer of OpSetConsumer, or the schedule of OpSetSchedule: 1 to
	// MaxRecordName bytes of UTF-8, without dots, spaces, *, > and control characters.
	Record string
	// Dead is messages that go to the dead-letter queue with an OpSetSource, each with the Reason
	// in its DeadLetter.
	Dead []Message
	// Change says what becomes of the record of OpSetConsumer and OpSetSchedule, and of the state
	// of OpSetSource. It gets the present value, nil if there is none, and the time of the
	// transaction, and returns the new value, which must not be changed later; an empty one removes
	// the record. If it returns an error, the operation fails with that, and the record stays as it
	// is. It may be called more than once, with what there is at the time. Without it, an
	// OpSetSource only reads.
	Change func(old []byte, now time.Time) (value []byte, err error)
	// MaxBytes is the most bytes, as Message.Size counts them, that an OpPop or OpLease and those
	// that follow it return together; 0 means no limit. The first item that exceeds it stays in the
	// queue, with ErrMaxBytes.
	//
	// Whatever it says, a transaction can move about MaxMessageSize bytes to leases. An item counts
	// with its first 90,000 bytes. An item that has no room stays in the queue, with ErrNoRoom.
	MaxBytes int
	// MaxPriorities is the most priorities that an OpInfo returns, half of them from either end. 0
	// means MaxInfoPriorities, which is also the most; NoPriorities means none.
	MaxPriorities int

	// State is the state that the item of an OpRemove must be in; AnyState is any in the queue. For
	// OpPurge it is Done or AnyState.
	State ItemState
	// DropHeader says which headers of an item OpRedriveItem leaves out. nil keeps all.
	DropHeader func(name string) bool
}

// Bounds of a Report.
const (
	// MaxNext is the most elements of Report.Next.
	MaxNext = 256
	// MaxResult is the longest Outcome.Result, in bytes.
	MaxResult = 1 << 20
	// MaxContentType is the longest Outcome.ContentType, in bytes.
	MaxContentType = 256
)

// Report is what the holder of a lease says of its job. It must not be changed later.
type Report struct {
	// Outcome is for OpAck, and is kept with a job that is kept once it is done: see Message.Keep.
	// Otherwise the result has NotKept. One without a Result is none.
	Outcome
	// Next is what an OpAck pushes if it succeeds, in the same transaction: OpPushes to queues of
	// the Keyspace that Settings.Next names, up to MaxNext. If one of them is not possible, the
	// OpAck fails with ErrOp, all those tied to it as well, and nothing is pushed. The items go to
	// the end of their priorities, with their groups, Delay, At and TTL. Limits of their queues do
	// not count. They cannot have a MsgID, a Unique or a Weight: the lease makes them happen once.
	Next []Op
	// Progress is for OpExtend, up to MaxProgress bytes. It is gone with the lease. Without any,
	// what was said before stays.
	Progress []byte
}

// noReport is what an operation without a Report says.
var noReport = &Report{}

// report returns what the holder of the lease says.
func (op *Op) report() *Report { return cmp.Or(op.Report, noReport) }

// Successors returns what an OpAck pushes: Report.Next, nil without a Report.
func (op *Op) Successors() []Op { return op.report().Next }

// misses reports whether the operation names a place, and the item it has found is at another.
func (op *Op) misses(at *ID) bool { return op.AtPlace && *at != op.ID }

// priorityIn returns the priority that a push has in a queue: always 0 in a FIFO queue.
func (op *Op) priorityIn(l *codec.Layout) int64 {
	if l.Fifo {
		return 0
	}
	return op.Priority
}

// delays reports whether the push may keep its item back.
func (op *Op) delays() bool { return op.Delay > 0 || !op.At.IsZero() }

// heldUntil returns until when an item that is pushed now is held back; zero if it is ready.
func (op *Op) heldUntil(now time.Time) time.Time {
	until := codec.Micros(now.Add(op.Delay + op.Message.Join))
	if !op.At.IsZero() {
		until = codec.Micros(op.At)
	}
	if until.After(codec.Micros(now)) {
		return until
	}
	return time.Time{}
}

// expires returns when the item of a push expires; zero if it does not.
func (op *Op) expires(now time.Time, s *Settings) time.Time {
	switch {
	case op.TTL == Never || op.Message.Join > 0:
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
