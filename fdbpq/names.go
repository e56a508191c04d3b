package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// What an item is, and how it is named.
type (
	// Item is a message in a queue.
	Item = codec.Item
	// Message is what a push adds to a queue.
	Message = codec.Message
	// ID names an item: its place in the order of its queue. ParseID reads what String returns.
	ID = codec.ID
	// Token names a lease, for OpAck, OpNak, OpExtend and OpTerm. ParseToken reads what String returns.
	Token = codec.Token
	// DeadLetter says how an item came into a dead-letter queue.
	DeadLetter = codec.DeadLetter
	// ItemState is the state of an item in its queue.
	ItemState = codec.ItemState
	// End is an end of a queue.
	End = codec.End
)

// The ends of a queue. Pops and peeks of a FIFO queue have Front.
const (
	Front = codec.Front
	Back  = codec.Back
)

// States of items. AnyState is for OpPurge: items in all of them.
const (
	AnyState = codec.AnyState
	Ready    = codec.Ready
	Delayed  = codec.Delayed
	Leased   = codec.Leased
)

// Reasons of dead letters, and the longest texts that are kept of an OpTerm and of an OpNak, in bytes.
const (
	ReasonMaxDeliver = codec.ReasonMaxDeliver
	ReasonTerminated = codec.ReasonTerminated
	MaxTermReason    = codec.MaxTermReason
	MaxNakReason     = codec.MaxNakReason
)

// ParseID reads what ID.String returns. Errors wrap ErrID.
func ParseID(text string) (ID, error) { return codec.ParseID(text) }

// ParseToken reads what Token.String returns. Errors wrap ErrToken.
func ParseToken(text string) (Token, error) { return codec.ParseToken(text) }

// What a queue is, and where.
type (
	// Subspace is the keys that begin with one prefix.
	Subspace = codec.Subspace
	// ValueFormat says how the bytes of a value are stored in an item's key.
	ValueFormat = codec.ValueFormat
	// QueueName names a queue of a Keyspace.
	QueueName = codec.QueueName
	// Settings are the settings of a queue. MaxBytes counts an item as Message.Size does. If it is set
	// where there is more than a transaction can count, pushes of a Batcher count that first; those in
	// a caller's own transaction get ErrNoRoom until it is counted.
	Settings = settings.Settings
	// Mark is left by Retire in the list of queues.
	Mark = codec.Mark
	// Removed counts items that left their queues for good without a pop or an acknowledgement.
	Removed = state.Removed
	// Ahead is when there will be something to do about a queue that nobody asks for.
	Ahead = state.Ahead
	// QueueAhead is that of a queue of a Keyspace.
	QueueAhead = state.QueueAhead
	// Setting is a setting that a store keeps for its whole life.
	Setting = codec.Setting
	// Mismatch is a setting that differs from the store's.
	Mismatch = codec.Mismatch
	// MismatchError is returned by OpenStore for a store that was made with other settings.
	MismatchError = codec.MismatchError
	// LostLeases says which of several acknowledgements, which are done together or not at all, name leases that are
	// over. It wraps ErrLeaseLost.
	LostLeases = codec.LostLeases
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

// Values of settings.
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
	// MaxKey is the longest Message.MsgID and Message.Unique, in bytes.
	MaxKey = codec.MaxKey
	// MinLease, MaxLease and MaxDelay bound the length of a lease and of a delay.
	MinLease = settings.MinLease
	MaxLease = settings.MaxLease
	MaxDelay = settings.MaxDelay
	// DefaultLease is for a lease whose length nothing says, not even Settings.AckWait.
	DefaultLease = settings.DefaultLease
	// MinTTL and MaxTTL bound the time after which an item expires.
	MinTTL = codec.MinTTL
	MaxTTL = codec.MaxTTL
	// Never as Op.TTL is no expiry, whatever Settings.TTL says.
	Never = codec.Never
	// Backoff as Op.Delay is what the queue's settings say, no delay if they say nothing.
	Backoff = codec.Backoff
	// SettingsLease is the Lease of an OpLease that is as long as Settings.AckWait says, even if it
	// follows an OpAck or OpLease.
	SettingsLease = codec.SettingsLease
	// RetireAfter is the least time between the call of Retire that marks a queue and
	// the call that takes it off the list.
	RetireAfter = codec.RetireAfter
)
