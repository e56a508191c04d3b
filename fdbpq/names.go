package fdbpq

import (
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// What an item is, and how it is named. These types, and those below, belong to internal packages,
// so their documentation lists fields and methods here.
type (
	// Item is a message in a queue: an embedded Message, and
	//
	//	ID        ID         // its place in the order of the queue
	//	PushedAt  time.Time  // when it was pushed, to the microsecond, by the clock of the
	//	                     // process that pushed it; zero if a program with the bare recipe did
	Item = codec.Item

	// Message is what a push adds to a queue.
	//
	//	Value       []byte               // the payload, which may be empty
	//	Headers     map[string][]string  // travel with the value unchanged; nil means none
	//	MsgID       string               // names the push, so that it happens once; at most
	//	                                 // MaxKey bytes; "" is none: see Settings.DuplicateWindow
	//	Unique      string               // a key that no other item has while this one is in the
	//	                                 // queue, in any state; at most MaxKey bytes; "" is none
	//	Expires     time.Time            // to the microsecond, by the clock of the process that
	//	                                 // serves the item; zero is never: see also Op.TTL
	//	DeadLetter  *DeadLetter          // how it came into a dead-letter queue; otherwise nil
	//
	// Size returns what the message counts where bytes are limited, as by MaxMessageSize and
	// Op.MaxBytes: the bytes of the value and of all texts, and a few for each. That is about what
	// it takes in a transaction. Group returns its group, "" for none: see GroupHeader.
	Message = codec.Message

	// ID names an item: its place in the order of its queue. Two items have the same ID only if 72
	// random bits coincide.
	//
	//	Priority  int64      // 0 in a FIFO queue
	//	Count     int64      // orders items of one priority; in a FIFO queue, the index
	//	Random    [...]byte  // makes the ID unique, and holds the time of the push
	//
	// String returns it as text, AppendTo appends that text to bytes, and ParseID reads it. Compare
	// returns -1, 0 or 1 if the item comes before another, is the same, or comes after it.
	ID = codec.ID

	// Token names one lease of an item, for OpAck, OpNak, OpExtend and OpTerm. Any holder of the
	// token may end or extend the lease.
	//
	//	ID     ID     // the id of the item
	//	Fence  int64  // tells this lease from all others of the item; it cannot be guessed from
	//	              // the ID or an earlier fence
	//	End    End    // the end of the queue that the item was leased from
	//
	// String returns it as text, AppendTo appends that text to bytes, and ParseToken reads it.
	Token = codec.Token

	// DeadLetter says how an item came into a dead-letter queue.
	//
	//	Queue       string     // the queue that it was in; "" if that is outside a Keyspace
	//	Reason      string     // ReasonMaxDeliver, ReasonTerminated, or what OpTerm gave
	//	At          time.Time  // when it was moved, to the microsecond
	//	Deliveries  int64      // how many it had
	//	Error       string     // the Reason of the last OpNak that gave one
	DeadLetter = codec.DeadLetter

	// ItemState is the state of an item in its queue: Ready, Delayed or Leased. String returns it
	// in lower case.
	ItemState = codec.ItemState

	// End is an end of a queue, Front or Back.
	End = codec.End
)

// The ends of a queue. Pops and peeks of a FIFO queue have Front.
const (
	Front = codec.Front
	Back  = codec.Back
)

// States of items. AnyState stands for all of them.
const (
	AnyState = codec.AnyState
	Ready    = codec.Ready
	Delayed  = codec.Delayed
	Leased   = codec.Leased
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
)

// ParseID reads what ID.String returns. Errors wrap ErrID.
func ParseID(text string) (ID, error) { return codec.ParseID(text) }

// ParseToken reads what Token.String returns. Errors wrap ErrToken.
func ParseToken(text string) (Token, error) { return codec.ParseToken(text) }

// What a queue is, and where.
type (
	// Subspace is the keys that begin with the prefix that its method Bytes returns: a
	// subspace.Subspace or directory.DirectorySubspace of FoundationDB's Go binding, or a
	// tuple.Subspace of this module. A directory partition cannot hold keys, and its Bytes panics:
	// create a directory inside.
	Subspace = codec.Subspace

	// ValueFormat says how the bytes of a value are stored in an item's key: RawValues or
	// TupleValues. String returns it for people to read.
	ValueFormat = codec.ValueFormat

	// QueueName names a queue of a Keyspace.
	//
	//	FIFO  bool    // it is a Queue, otherwise a PriorityQueue
	//	Name  string
	QueueName = codec.QueueName

	// Settings are the settings of a queue: see the fields of settings.Settings. MaxBytes counts an
	// item as Message.Size does. It cannot be set on a queue with more items than a transaction can
	// count.
	Settings = settings.Settings

	// Mark is what Retire gives a queue in the list that it found empty. NewMark makes one.
	Mark = codec.Mark

	// Removed counts items that left their queues for good without an operation that removes items,
	// such as a pop or an acknowledgement, and items that came without a push.
	//
	//	Expired    int64          // because they had expired
	//	Discarded  int64          // because of DiscardOld
	//	Dead       int64          // because they moved to a dead-letter queue
	//	Fired      int64          // items that schedules have pushed
	//	Skipped    int64          // times of schedules without an item
	//	Late       time.Duration  // how late schedules pushed their items, summed up
	//
	// Add adds the counts of another Removed.
	Removed = state.Removed

	// Ahead is when there will be something to do in a queue even if it is not used.
	//
	//	Due    time.Time // when the next lease or delay is over, or the next item expires
	//	Over   time.Time // when the window of the next message id is over
	//	Source bool      // it has a source, or this has changed
	//
	// The times are zero for never.
	Ahead = state.Ahead

	// QueueAhead is an embedded Ahead, and the Queue that it is about.
	QueueAhead = state.QueueAhead

	// Setting is a setting that a store keeps for its whole life: SettingRoots or
	// SettingValueFormat.
	Setting = codec.Setting

	// Mismatch is a Setting of a Keyspace that differs from the store's: what is Stored and what
	// was Asked for, as text for people to read.
	Mismatch = codec.Mismatch

	// MismatchError is returned by OpenStore for a store that was made with other settings. It has
	// at least one of Mismatches; Error names them all.
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
	MaxWeight = 100
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
	// Never as Op.TTL is no expiry, whatever Settings.TTL says.
	Never time.Duration = math.MinInt64
	// Backoff as Op.Delay means the delay of the queue's settings, or none if they have no backoff.
	Backoff time.Duration = math.MinInt64
	// SettingsLease as Op.Lease of an OpLease means Settings.AckWait, even if the OpLease follows
	// an OpAck or OpLease.
	SettingsLease time.Duration = math.MinInt64
	// RetireAfter is the least time between the call of Retire that marks a queue and the call that
	// takes it off the list.
	RetireAfter = codec.RetireAfter
)
