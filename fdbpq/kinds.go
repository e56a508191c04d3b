package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/internal/codec"

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
	// Outcome. What cannot be read is not kept, and a value that the transaction has no room for is
	// left out, see Finished.NoValue. Without room for the rest beside other operations an OpAck
	// fails with ErrNoRoom. A chain of them that would have none in any transaction keeps fewer
	// attempts and headers or, with large results and successors, fails with ErrOp.
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

// Trait is what operations of some kinds do, always or depending on the queue. See OpKind.Has.
type Trait uint16

// The traits.
const (
	// Writes can change the queue.
	Writes Trait = 1 << iota
	// TakesItem takes an item out of reach of others.
	TakesItem
	// ReturnsItem returns an item with its value.
	ReturnsItem
	// MovesItem reads or writes an item that the operation does not contain.
	MovesItem
	// FillsQueue makes an item ready, unless Op.Delay or Op.At holds it back.
	FillsQueue
	// FallsDue writes something that falls due at Result.NextDue, if that is not zero.
	FallsDue
	// EndsLease ends leases without waiting for their end.
	EndsLease
	// Grows makes the store larger: a full one refuses it. Dead letters do not count.
	Grows

	ties // an operation that follows one of its kind is done together with it or not at all
)

// Has reports whether operations of the kind have the trait.
func (k OpKind) Has(t Trait) bool { return kinds[k].traits&t != 0 }

// Writes reports whether the operation can change the queue.
func (k OpKind) Writes() bool { return k.Has(Writes) }

// recordKind returns the kind of records that an operation is about, "" if it is about none.
func (k OpKind) recordKind() codec.RecordKind { return kinds[k].record }

// kinds is the table of all kinds of operations. Numbers without a row are of noFamily.
var kinds = [1 << 8]struct {
	family family
	traits Trait
	record codec.RecordKind // see OpKind.recordKind
}{
	OpPush:  {family: pushFamily, traits: Writes | FillsQueue | FallsDue | Grows | ties},
	OpPop:   {family: popFamily, traits: Writes | TakesItem | ReturnsItem | MovesItem},
	OpPeek:  {family: peekFamily, traits: ReturnsItem | MovesItem},
	OpLen:   {family: lookFamily},
	OpLease: {family: popFamily, traits: Writes | TakesItem | ReturnsItem | MovesItem},
	OpAck:   {family: tokenFamily, traits: Writes | EndsLease | ties},
	OpNak: {
		family: tokenFamily, traits: Writes | MovesItem | FillsQueue | FallsDue | EndsLease,
	},
	OpExtend:      {family: tokenFamily, traits: Writes | MovesItem},
	OpInfo:        {family: lookFamily},
	OpRestore:     {family: restoreFamily, traits: Writes | FillsQueue},
	OpTerm:        {family: tokenFamily, traits: Writes | MovesItem | EndsLease},
	OpSettings:    {family: configFamily},
	OpConfigure:   {family: configFamily, traits: Writes | Grows},
	OpGet:         {family: lookFamily, traits: ReturnsItem | MovesItem},
	OpRank:        {family: lookFamily},
	OpRemove:      {family: editFamily, traits: Writes | EndsLease},
	OpMove:        {family: editFamily, traits: Writes | MovesItem | FillsQueue | Grows},
	OpPurge:       {family: editFamily, traits: Writes | EndsLease},
	OpRelease:     {family: editFamily, traits: Writes | MovesItem | FillsQueue | EndsLease},
	OpRedriveItem: {family: editFamily, traits: Writes | MovesItem | Grows},
	OpSweep:       {family: sweepFamily, traits: Writes},
	OpConsumers:   {family: recordFamily, record: codec.ConsumerRecord},
	OpSetConsumer: {family: recordFamily, traits: Writes | Grows, record: codec.ConsumerRecord},
	OpSchedules:   {family: recordFamily, record: codec.ScheduleRecord},
	OpSetSchedule: {
		family: recordFamily, traits: Writes | FallsDue | Grows, record: codec.ScheduleRecord,
	},
	OpSetSource: {family: configFamily, traits: Writes | Grows},
}

// family is the operations that run together in a transaction, in the order of txOps.apply.
type family uint8

const (
	noFamily family = iota
	pushFamily
	popFamily
	tokenFamily
	peekFamily
	lookFamily
	configFamily
	recordFamily
	sweepFamily
	restoreFamily
	editFamily
)
