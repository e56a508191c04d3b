package fdbpq

import (
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// What an item is, and how it is named. Each type is declared, with its fields and methods, in the
// internal package that works with it; programs use it by the name it has here. An alias, because
// those packages lie below this one, and a type of its own would be converted at each call between
// them. Its fields are shown by
//
//	go doc github.com/pqbridge/pqbridge/fdbpq/internal/codec Item
type (
	// Item is a message in a queue, with its ID and the time of its push.
	Item = codec.Item
	// Message is what a push adds to a queue.
	Message = codec.Message
	// ID is the place of an item in the order of its queue, and the id of a job: the place of its
	// first push, for good. Item.ID is the one, Item.Job the other. They differ once the item has
	// moved to another priority or has been a dead letter. ParseID reads the text of either.
	ID = codec.ID
	// Token names one lease of an item, for OpAck, OpNak, OpExtend and OpTerm. ParseToken reads
	// its text.
	Token = codec.Token
	// DeadLetter says how an item came into a dead-letter queue.
	DeadLetter = codec.DeadLetter
	// Joiner names a job that waits for others.
	Joiner = codec.Joiner
	// Finished is a job that is done, and kept.
	Finished = codec.Finished
	// Outcome is what an acknowledgement says of its job.
	Outcome = codec.Outcome
	// ItemState is the state of an item in its queue: Ready, Delayed or Leased.
	ItemState = codec.ItemState
	// End is an end of a queue: Front or Back.
	End = codec.End
)

// The ends of a queue. Pops and peeks of a FIFO queue have Front.
const (
	Front = codec.Front
	Back  = codec.Back
)

// States of items. AnyState stands for all states of items in the queue, so not for Done.
const (
	AnyState = codec.AnyState
	Ready    = codec.Ready
	Delayed  = codec.Delayed
	Leased   = codec.Leased
	Done     = codec.Done
)

// Reasons of dead letters, and the longest Op.Reason that is kept of an OpTerm and of an OpNak, in
// bytes.
const (
	ReasonMaxDeliver = codec.ReasonMaxDeliver
	ReasonTerminated = "terminated"
	MaxTermReason    = 256
	MaxNakReason     = codec.MaxNakReason
	// MaxHolder is the longest Op.Holder, in bytes.
	MaxHolder = settings.MaxHolder
	// MaxProgress is the longest Report.Progress, in bytes.
	MaxProgress = settings.MaxProgress
)

// ParseID reads what ID.String returns. Errors wrap ErrID.
func ParseID(text string) (ID, error) { return codec.ParseID(text) }

// Moved reports whether an id is the place of an item that has moved, and so not the id of its job.
func Moved(id *ID) bool { return codec.Moved(id) }

// ParseToken reads what Token.String returns. Errors wrap ErrToken.
func ParseToken(text string) (Token, error) { return codec.ParseToken(text) }

// What a queue is, and where.
type (
	// Subspace is the keys that begin with one prefix.
	Subspace = codec.Subspace
	// ValueFormat says how the bytes of a value are stored in an item's key: RawValues or
	// TupleValues.
	ValueFormat = codec.ValueFormat
	// QueueName names a queue of a Keyspace.
	QueueName = codec.QueueName
	// Settings are the settings of a queue. MaxBytes counts an item as Message.Size does. It cannot
	// be set on a queue with more items than a transaction can count.
	Settings = settings.Settings
	// Mark is what Retire gives a queue in the list that it found empty. NewMark makes one.
	Mark = codec.Mark
	// SideEffects counts items that left their queues, or came, without an operation for it.
	SideEffects = state.SideEffects
	// QueueSideEffects is the SideEffects of one queue.
	QueueSideEffects = state.QueueSideEffects
	// Upcoming is when there will be something to do in a queue even if it is not used.
	Upcoming = state.Upcoming
	// QueueUpcoming is the Upcoming of one queue.
	QueueUpcoming = state.QueueUpcoming
	// QueueJob is a job and its queue.
	QueueJob = state.QueueJob
	// Setting is a setting that a store keeps for its whole life: SettingRoots or
	// SettingValueFormat.
	Setting = codec.Setting
	// Mismatch is a Setting of a Keyspace that differs from the store's.
	Mismatch = codec.Mismatch
	// MismatchError is returned by OpenStore for a store that was made with other settings.
	MismatchError = codec.MismatchError
)

// Formats of values.
const (
	// RawValues stores the bytes as they are, as the recipes in Python do.
	RawValues = codec.RawValues
	// TupleValues stores a tuple of one byte string, as the recipes in Java do.
	TupleValues = codec.TupleValues
)

// Settings of a store: see NewKeyspace.
const (
	SettingRoots       = codec.SettingRoots
	SettingValueFormat = codec.SettingValueFormat
)

// Values of Settings.Discard, and of Settings.DuplicateWindow.
const (
	DiscardNew             = settings.DiscardNew
	DiscardOld             = settings.DiscardOld
	DefaultDuplicateWindow = settings.DefaultDuplicateWindow
	NoDuplicateWindow      = settings.NoDuplicateWindow
)

// Limits.
const (
	// MaxQueueName is the longest queue name, in bytes.
	MaxQueueName = codec.MaxQueueName
	// MaxMessageSize is the largest Message.Size of a push.
	MaxMessageSize = codec.MaxMessageSize
	// HeaderSchedule is the header of items that schedules push. It has the id of the schedule.
	HeaderSchedule = due.HeaderSchedule
	// HeaderScheduledAt is another header of these items. It has the time that the item is for, in
	// RFC 3339.
	HeaderScheduledAt = due.HeaderScheduledAt

	// GroupHeader is the header of a Message that names its group, 1 to MaxGroup bytes in one line.
	// Items of equal priority are served group by group, in turn, and in each group in the order of
	// the pushes. Settings may limit what a group gets. Message.Group returns it.
	GroupHeader = codec.GroupHeader
	// MaxGroup is the longest group, in bytes.
	MaxGroup = settings.MaxGroup
	// MaxWeight is the largest Op.Weight.
	MaxWeight = codec.MaxWeight
	// MaxKey is the longest Message.MsgID and Message.Unique, in bytes.
	MaxKey = codec.MaxKey
	// MinLease, MaxLease and MaxDelay bound the length of a lease and of a delay.
	MinLease = settings.MinLease
	MaxLease = settings.MaxLease
	MaxDelay = settings.MaxDelay
	// DefaultLease is the length of a lease if neither the operation nor Settings.AckWait says one.
	DefaultLease = settings.DefaultLease
	// MinTTL and MaxTTL bound the time after which an item expires.
	MinTTL = settings.MinTTL
	MaxTTL = settings.MaxDelay
	// MinKeep and MaxKeep bound how long a job is kept once it is done.
	MinKeep = settings.MinKeep
	MaxKeep = settings.MaxDelay
	// MinJoin and MaxJoin bound how long a joiner waits, and MaxJoiner its Message.Size.
	MinJoin   = settings.MinJoin
	MaxJoin   = settings.MaxDelay
	MaxJoiner = codec.MaxJoiner
	// HeaderJoined is the header of a joiner that has waited: how many of its members are done, how
	// many died, how many left their queues in another way, and how many are still open.
	HeaderJoined = codec.HeaderJoined
	// Never as Op.TTL is no expiry, whatever Settings.TTL says.
	Never time.Duration = math.MinInt64
	// Backoff as Op.Delay means the delay of the queue's settings, or Op.RetryDelay if they have no
	// backoff.
	Backoff time.Duration = math.MinInt64
	// SettingsLease as Op.Lease of an OpLease means Settings.AckWait, even if the OpLease follows
	// an OpAck or OpLease.
	SettingsLease time.Duration = math.MinInt64
	// RetireAfter is the least time between the call of Retire that marks a queue and the call that
	// takes it off the list.
	RetireAfter = codec.RetireAfter
)
