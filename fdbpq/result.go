package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Result is the result of one Op.
type Result struct {
	// Item is the item of OpPop, OpPeek, OpLease and OpGet. For OpPush, OpMove, OpRedriveItem,
	// OpRemove and OpRelease only its ID, which is its place, First and PushedAt are set: Item.Job
	// is the id of the job.
	Item Item
	// Duplicate says that an OpPush changed nothing, because of its MsgID or Unique. Item.ID is the
	// id of the job of the first push, which may have moved or left the queue.
	Duplicate bool
	// Lease is for OpLease and OpExtend.
	Lease Lease
	// NextDue is, for an operation with Waits that finds nothing, when the next item of the queue
	// falls due; zero if none will. For OpNak and OpPush it is when the delay of the item is over;
	// zero without a delay, and for a duplicate. For OpSetSchedule it is when the schedule fires
	// next.
	NextDue time.Time
	// Ready is how many items are ready after an OpPop or OpLease with Count that got an item, or
	// for which there was none; 0 if it failed for another reason. It does not count items that
	// other programs added with the bare recipe.
	Ready int64
	// Len is the number of items for OpLen, and how many an OpPurge removed. It does not count
	// items that other programs added with the bare recipe.
	Len int64
	// State is the state of the item, for OpGet, and Found is all that a Browse would say of it.
	State ItemState
	Found *Browsed
	// Rank is the number of items that would be served before the item of an OpRank.
	Rank int64
	// RankAtLeast says that there may be more than Rank: see MaxRank.
	RankAtLeast bool
	// Queue is the name of the dead-letter queue if an OpGet found the item there, not in its own
	// queue. Outside a Keyspace queues have no names, and only Item.DeadLetter says so.
	Queue string
	// Home is the name of the queue to which an OpRedriveItem sent the item; "" outside a Keyspace.
	Home string
	// Swept is what OpSweep has done.
	Swept Swept
	// Info is the result of OpInfo. Operations on the same queue may share it.
	Info *Info
	// Settings are the settings of the queue, for OpSettings and OpConfigure.
	Settings *Settings
	// Unchanged says that an OpConfigure or OpSetSchedule left everything as it was.
	Unchanged bool
	// Source is the state of the source, for OpSettings and OpSetSource: the JSON of a
	// settings.SourceState, nil without a source.
	Source []byte
	// Records are the records of the queue, for OpConsumers and OpSchedules. For OpSetConsumer and
	// OpSetSchedule it is one, as it is now, without a Value if it was removed.
	Records []Record
	// MaxDeliver is Settings.MaxDeliver when an OpLease got its item.
	MaxDeliver int64
	// Freed says that an OpAck, OpTerm, OpRemove, OpRelease or OpPurge ended a lease of a queue
	// with Settings.MaxLeased or Settings.MaxLeasedPerGroup, so another may begin.
	Freed bool
	// NotKept says that an OpAck had a Result which is not kept, because its job is not.
	NotKept bool
	// ValueDropped says that an OpAck kept its job without the value, for which the transaction had
	// no room: Finished.NoValue.
	ValueDropped bool
	// Err is the error of this operation alone: ErrEmpty, ErrPaused, ErrRate, ErrGroupLimits,
	// ErrMaxLeased, ErrFull, ErrMessageTooLarge, ErrLeaseLost, ErrMaxBytes, ErrNoRoom, ErrExists,
	// ErrNotFound, ErrLeased, ErrNotLeased, ErrNotDeadLetter, ErrDone, ErrNoValue, ErrManyRates,
	// ErrMaxRecords, ErrNoSource, ErrSettings, ErrOp or ErrCorrupt, or what Op.Change returned. It
	// does not affect the other operations.
	Err error

	wait   time.Duration // of the lease that an OpLease or OpExtend gave or an OpAck ended
	holder string        // of the same lease; "" is none
	ended  bool          // the OpAck ended a lease, and an OpLease that follows may have its place
	place  bool          // the OpLease has the place of a lease that was ended before it
}

// Swept is the result of OpSweep. An ErrCorrupt with it says that something cannot be read, and
// stays as it is.
type Swept struct {
	// More says that there may be more to do than the transaction had room for.
	More bool
	// Done says that something was removed or brought back. If not, and there is More, other queues
	// may have taken all the room.
	Done bool
	// MsgIDs is how many message ids were removed, and Finished how many finished jobs.
	MsgIDs, Finished int
}

// LeaseLength returns the length of the lease that an OpLease or OpExtend gave, or an OpAck ended.
// An OpLease without a length that follows gets the same.
func (r *Result) LeaseLength() time.Duration { return r.wait }

// LeaseHolder returns the Op.Holder of the lease that an OpLease gave or an OpAck ended. An OpLease
// without a holder that follows gets the same.
func (r *Result) LeaseHolder() string { return r.holder }

// Lease is the right to an item for a time.
type Lease struct {
	// Token is for OpAck, OpNak, OpExtend and OpTerm.
	Token Token
	// Until is when the item goes back to the queue unless the lease ends before. It is by the
	// clock of the process that gave the lease.
	Until time.Time
	// Deliveries is how many times the item was delivered, this time included.
	Deliveries int64
}

// Info is what OpInfo returns about a queue. It does not count items that other programs
// added with the bare recipe.
type Info struct {
	// Ready, Leased and Delayed are the number of items in each state.
	Ready, Leased, Delayed int64
	// Finished is how many finished jobs are kept; 0 with NoPriorities. Records that are over count
	// until a sweep.
	Finished int64
	// Priorities is the number of ready items of each priority, in order; nil in a FIFO queue.
	Priorities []PriorityCount
	// MorePriorities says that Priorities has only the first and the last ones.
	MorePriorities bool
	// Oldest is the earliest push time among the first items of these priorities; zero if there are
	// none.
	Oldest time.Time
	// NextDue is when the next held item falls due, or the next ready one expires, or what a rate
	// has stored is over; zero if none will.
	NextDue time.Time
	// Groups are the groups with ready or leased items, at most MaxInfoGroups of those with the
	// most, in the order of their names. nil if there are none, or with NoPriorities.
	Groups []GroupCount
	// GroupCount is how many groups have ready or leased items.
	GroupCount int
	// GroupsAtLimit is how many of these have ready items, but pops pass over them because of
	// Settings.MaxLeasedPerGroup, RatePerGroup or PausedGroups.
	GroupsAtLimit int
	// MoreGroups says that the queue has more groups than Groups. If there are very many, not all
	// of them are counted.
	MoreGroups bool
}

// GroupCount is the number of items of one group.
type GroupCount struct {
	Group         string
	Ready, Leased int64
}

// PriorityCount is the number of ready items of one priority.
type PriorityCount struct {
	Priority, Count int64
}

const (
	// MaxInfoPriorities is the most priorities that an OpInfo returns.
	MaxInfoPriorities = 1000
	// MaxInfoGroups is the most groups that an OpInfo returns.
	MaxInfoGroups = 100
	// NoPriorities as Op.MaxPriorities makes an OpInfo return only the number of items in each
	// state, which takes less time.
	NoPriorities = -1
)

// Record is what a queue keeps under a name, for a consumer or a schedule.
//
// A consumer is a way in which programs read the queue with another protocol. Its Value is JSON.
// The member "expires", if there is one, says when the queue removes the record; other members mean
// nothing here. The Value of a schedule is what schedule.Parse reads.
type Record struct {
	Name  string
	Value []byte // 1 to MaxConsumerValue or MaxScheduleValue bytes; must not be changed
}

// Bounds of records.
const (
	// MaxConsumers is the most consumers of a queue.
	MaxConsumers = codec.MaxConsumers
	// MaxConsumerValue is the longest Record.Value of a consumer, in bytes.
	MaxConsumerValue = codec.MaxConsumerValue
	// MaxSchedules is the most schedules of a queue.
	MaxSchedules = codec.MaxSchedules
	// MaxScheduleBytes is the most bytes of the names and values of a queue's schedules, together.
	MaxScheduleBytes = codec.MaxScheduleBytes
	// MaxScheduleValue is the longest Record.Value of a schedule, in bytes.
	MaxScheduleValue = codec.MaxScheduleValue
	// MaxRecordName is the longest Record.Name, in bytes.
	MaxRecordName = codec.MaxRecordName
)

// Browsed is an item where it stands.
type Browsed struct {
	Item // in full, unless Err

	// State is AnyState if a held item cannot be read.
	State ItemState
	// Due is when the lease or the delay is over, zero for a ready item. It may have passed.
	Due time.Time
	// LeasedSince is when the lease was taken, zero unless State is Leased. Without a Holder, and
	// if the job was not to be kept when it was leased, it is when the lease was last renewed.
	LeasedSince time.Time
	// Holder is the Op.Holder of the lease; "" is none.
	Holder string
	// Progress is the Report.Progress of the last OpExtend of the lease that had any; nil is none.
	Progress []byte
	// Deliveries is how many deliveries the item has had, the present one included.
	Deliveries int64
	// Reason comes from the last negative acknowledgement that gave one.
	Reason string
	// Finished is for a job in the state Done, nil for all others: when it was done, and its
	// outcome. The ID of its Item is its last place, LeasedSince when its last lease began, zero if
	// that is not known.
	Finished *Finished
	// Err is ErrCorrupt for an item that cannot be read. Then only its ID and perhaps its State are
	// known. ReadItems also has ErrNotFound.
	Err error

	attempts []trail.Attempt // of all lives; nil without any of this life
}

// Attempts returns the attempts of the job that have ended and are kept, oldest first: see
// Settings.Trail. Without Browse.Trail, a Walk has only those of earlier lives, and those of jobs
// that are dead letters or done.
func (b *Browsed) Attempts() []trail.Attempt {
	switch {
	case b.Finished != nil:
		return b.Finished.Attempts()
	case b.attempts != nil:
		return b.attempts
	}
	past, _ := b.Item.Trail()
	return past
}

// Successors returns what the acknowledgement of a finished job has pushed, as far as that is kept,
// and how many more there were: see Settings.Trail.
func (b *Browsed) Successors() (jobs []trail.Job, more int) {
	return trail.ParseSuccessors(b.Headers[trail.HeaderNext])
}
