package fdbpq

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// OpKind is what an Op does.
type OpKind uint8

// The operations. On a Queue, OpPush enqueues and OpPop dequeues.
const (
	// OpPush adds an item.
	OpPush OpKind = iota + 1
	// OpPop removes the first item from an end, and returns it.
	OpPop
	// OpPeek returns the first item from an end, and leaves it in the queue.
	OpPeek
	// OpLen returns how many items are ready.
	OpLen
	// OpLease is OpPop, but the item stays leased until OpAck removes it: it comes back
	// to its old place when the lease is over.
	OpLease
	// OpAck removes a leased item. If its Message.Keep or Settings.Keep says so, and it is no dead
	// letter, the job is then a finished job: out of the queue, but kept for that time with its
	// Outcome. That never fails an OpAck: what cannot be read is not kept, and a value that the
	// transaction has no room for is left out, see Finished.NoValue.
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
	// OpConfigure changes the settings of the queue, before any other operation of its transaction.
	OpConfigure
	// OpGet returns an item, in whatever state. A job that is not in the queue is looked for among
	// the finished jobs, and then in the dead-letter queue that the settings name: see
	// Result.Found and Result.Queue.
	OpGet
	// OpRank returns how many items would be served before an item.
	OpRank
	// OpRemove removes an item, wherever it is. With a State, an item in another state stays, with
	// ErrNotFound; a finished job is removed only with Done.
	OpRemove
	// OpMove moves an item to the end of another priority. The job keeps its id, its item gets
	// another place: Result.Item.ID. A leased item stays where it is, with ErrLeased.
	OpMove
	// OpPurge removes all items at once, however many there are, or with the State Done all
	// finished jobs.
	OpPurge
	// OpRelease ends a lease without its token: the item is ready at once at its old place, its
	// delivery does not count, and the token is invalid. An item that is not leased stays as it
	// is, with ErrNotLeased.
	OpRelease
	// OpRedriveItem sends an item of a dead-letter queue, ready or delayed, back to the queue it
	// came from. A leased item stays where it is, with ErrLeased. So does an item that is not a
	// dead letter, with ErrNotDeadLetter. A finished job begins a new life in its own queue, at the
	// end of its priority, or stays with ErrNoValue.
	OpRedriveItem
	// OpSweep does the due work of a queue that is not used, or not often enough: it brings items
	// back, removes expired items and message ids whose window is over, and moves dead letters. It
	// removes finished jobs that are over and, except for those of the last minute, the oldest of
	// more than Settings.KeepItems. It does more of this than operations that look at the queue,
	// but no more than fits into one transaction: see Result.Swept.
	OpSweep
	// OpConsumers returns the records of the queue's consumers, in the order of their names.
	OpConsumers
	// OpSetConsumer creates, changes or removes the record of a consumer, before all other
	// operations of its transaction but those on settings. The queue itself removes a record that
	// has expired: see Record.
	OpSetConsumer
	// OpSchedules returns the records of the queue's schedules, in the order of their ids: those
	// after Op.Record, and with Op.MaxBytes up to the first at which their values have as many.
	OpSchedules
	// OpSetSchedule creates, changes or removes the record of a schedule, in the same order as
	// OpSetConsumer.
	//
	// Once Record.Next is due, the first transaction that looks at the queue pushes the item and
	// writes the next time, so each time fires exactly once. An OpSetSchedule also looks, before
	// the change, and after it if that makes the schedule due. It fails with ErrNoRoom while more
	// times are due than fit into the transaction.
	OpSetSchedule
	// OpSetSource changes the state of the queue's source, together with the pushes that follow it
	// or not at all. At most one per transaction.
	OpSetSource
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

// Target is a queue: a *PriorityQueue or a *Queue.
type Target interface {
	Layout() *codec.Layout
}

// handle is what PriorityQueue and Queue have in common.
type handle struct{ l *codec.Layout }

// Layout is where the keys of the queue are, for other packages of this module.
func (q *handle) Layout() *codec.Layout { return q.l }

// bytesOf returns about how many bytes of a transaction the operations take, apart from items that
// they move.
func bytesOf(ops []Op) (n int) {
	for i := range ops {
		n += state.RestoreOverhead
		if bytes := families[kinds[ops[i].Kind].family].bytes; bytes != nil {
			n += bytes(&ops[i], ops[i].Queue.Layout())
		}
	}
	return n
}

// tied reports whether an operation and the one before it are done together or not at all.
func tied(ops []Op, i int) bool {
	kind := ops[i].Kind
	return i > 0 && ops[i].Follows && ops[i-1].Kind == kind && kind.Has(ties)
}

// chains returns the operations at the given indexes, chain by chain: operations tied to each other
// are one chain, any other is a chain of its own.
func chains(ops []Op, indexes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for rest := indexes; len(rest) > 0; {
			size := 1
			for size < len(rest) && rest[size] == rest[size-1]+1 && tied(ops, rest[size]) {
				size++
			}

			if !yield(rest[:size]) {
				return
			}
			rest = rest[size:]
		}
	}
}

// txn is a transaction as all families of operations see it.
type txn struct {
	tx       kv.Transaction // nil if it only reads
	snapshot kv.Reader      // reads without conflict
	now      time.Time      // zero if it only reads: nothing expires then
	asOf     time.Time      // the same, but never zero
	ops      []Op
	results  []Result          // by place in ops
	queues   []*queueTxn       // in order of first use
	popped   []state.TakenItem // in order of removal
	known    *state.Known
	secrets  state.GroupSecrets
	cached   *state.CachedSettings
	listed   []*codec.Layout // queues that pushes found in the list of queues, or added to it

	minCounts  state.CountsByQueue // the lowest that pushed items may get; nil is no bound
	nextCounts state.CountsByQueue // after the counts of the pushed items

	begun  time.Time    // when this process began it
	bounds searchBounds // of walks that pass over items, and searches

	moving   moveRoom
	returned state.ItemRoom
	changed  state.ItemRoom // for the records that changes return
	outgoing due.Outgoing
}

// queueTxn is one queue of a transaction as all families of operations see it.
type queueTxn struct {
	*txn
	l      *codec.Layout
	ledger state.Ledger
	due    due.Due

	looked bool // an operation other than a pop depends on which items are ready
	takes  bool // there are pops, operations with tokens or edits
	pushed bool // this transaction has added a ready item
}

// moreExpired is the error of pops and peeks that meet an item that has expired, because not all
// that is due was handled.
func (q *queueTxn) moreExpired() error {
	if q.due.Err != nil && !q.due.Done { // the next transaction would do no more
		return q.due.Err
	}
	return state.ErrMoreExpired
}

// ofOps are the errors of operations. Any other error is one of the store.
var ofOps = []error{
	ErrEmpty, ErrCorrupt, ErrNoRoom, ErrFull, ErrLeaseLost, ErrOp, ErrNotFound, ErrExists,
	ErrLeased, ErrNotLeased, ErrNotDeadLetter, ErrDone, ErrNoValue, ErrManyRates, ErrManyGroups,
	ErrMessageTooLarge, ErrItemTooLarge, ErrMaxLeased,
}

// failOps makes an error of operations the result of those at the given indexes. It returns an
// error of the store, which ends the whole transaction.
func (t *txn) failOps(err error, indexes ...int) error {
	if err == nil || !slices.ContainsFunc(ofOps, func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	t.failAll(indexes, err)
	return nil
}

// failAll makes an error the result of the operations at the given indexes.
func (t *txn) failAll(indexes []int, err error) {
	for _, i := range indexes {
		t.results[i].Err = err
	}
}
