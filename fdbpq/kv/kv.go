// Package kv is the contract between the queues and their store: an ordered key-value store with
// strictly serializable transactions. Vocabulary, semantics and limits are FoundationDB's, so
// FoundationDB itself is a thin engine and every other engine behaves like it.
//
// # Transactions
//
// [Database.Begin] starts a transaction, which sees one consistent state of the store plus its own
// writes. Commit makes all of its writes visible at once, or none. Everything a transaction reads
// is added to its read conflict ranges, except through [Transaction.Snapshot]. Commit fails with
// [ErrConflict] if another transaction that committed in the meantime wrote into one of those
// ranges. A serial engine, see [Traits], never reports a conflict but must give the same results.
//
// A transaction that wrote nothing commits without conflict, and its Commit reports
// success only when everything it read is durable.
//
// [Database.BeginRead] starts a read-only transaction. It sees only what is
// durable, includes everything committed before it began, waits for no writer and needs no commit.
//
// # Durability
//
// When the future returned by Commit is ready without error, the writes survive the end of the
// process and, in engines that write to disk, a power cut.
//
// # Bytes
//
// An engine does not keep or change the slices it is given after the call returns. The slices it
// returns belong to the caller and stay valid after the transaction has ended.
//
// # Concurrency
//
// A Database is safe for concurrent use. A transaction is used by one goroutine at a time.
package kv

import (
	"bytes"
	"context"
)

// Limits of every engine, in bytes. They are FoundationDB's.
const (
	// MaxKeySize is the longest key, in bytes.
	MaxKeySize = 10_000
	// MaxValueSize is the longest value, in bytes.
	MaxValueSize = 100_000
	// MaxTransactionSize bounds the total of the keys and values that a transaction
	// writes and of its conflict ranges, in bytes.
	MaxTransactionSize = 10_000_000
)

// Database is one store. A decorator embeds the Database it wraps, so that it forwards
// whatever it does not change, Traits and Check above all.
type Database interface {
	// Traits says what kind of engine this is. It is cheap and always returns the same value.
	Traits() Traits

	// Begin starts a transaction, which reads the store as it was before Begin returned. So a time
	// taken after Begin is no older than the data, however long the process stood still. The
	// context bounds the whole life of the transaction: when it ends, pending and later calls fail
	// with the context's error. In a serial engine Begin waits for the writer before it.
	//
	// Errors: ErrClosed, ErrThrottled, ErrUnavailable, ErrCorrupt, the context's error.
	Begin(ctx context.Context, o BeginOptions) (Transaction, error)

	// BeginRead starts a read-only transaction over the durable state. The caller must Cancel it.
	//
	// Errors: as Begin.
	BeginRead(ctx context.Context) (ReadTransaction, error)

	// Check returns nil as long as nothing is known to be wrong with the store. It reports what a
	// transaction need not notice: files that were removed, or damage to data the transaction does
	// not read. It costs next to nothing, so it can be called often.
	//
	// Errors: ErrClosed; ErrUnavailable while the store cannot write; ErrCorrupt
	// once some data could not be read, for any reader.
	Check() error

	// Close closes the store. Transactions still open fail with ErrClosed. It is safe
	// to call more than once.
	Close() error
}

// Traits is what sets an engine apart from others under the same contract.
type Traits struct {
	// Pipelines: a transaction that begins after Commit of an earlier one has returned, but before
	// its future is ready, already sees the earlier one's writes, so the two cannot conflict.
	// Callers use it to overlap work with the wait for durability.
	Pipelines bool

	// Serial: one writer runs at a time. Begin waits while another transaction is
	// open, and there are no conflicts. In other engines any number of
	// transactions may be open, even in one goroutine.
	Serial bool

	// Shared: others may use the same store at the same time, each through a Database of its own,
	// for example from other machines. Without it this Database is the only way into its store.
	Shared bool
}

// BeginOptions says what a transaction is for. The zero value promises nothing.
type BeginOptions struct {
	// Blind promises that the transaction never reads what it may have written itself: it is
	// undefined whether such reads see the writes. Engines save work with it.
	Blind bool

	// Shrinks says that the transaction removes data, or puts back what was removed,
	// apart from a few bytes of bookkeeping. An engine that keeps space in reserve
	// lets it in when the disk is nearly full. Otherwise it makes no difference.
	Shrinks bool
}

// Reader reads in a transaction. Reads return futures: an engine may start them at
// once and run several in parallel. A read sees the writes that the transaction made
// before the call, and none made later.
//
// Errors of the futures: ErrTooOld, ErrThrottled, ErrUnavailable, ErrCorrupt,
// ErrClosed, ErrUsed, the context's error.
type Reader interface {
	// Get returns the value of key, or nil if there is none. An empty value is not nil.
	Get(key []byte) Future[[]byte]

	// GetRange returns the pairs with r.Begin <= key < r.End in key order, or from the last
	// to the first if o.Reverse, at most o.Limit of them and, about, o.Bytes. Its read
	// conflict range covers only the part of r that it had to examine: up to and including
	// the last key returned if it is o.Full, all of r otherwise.
	//
	// A read with o.Bytes may also see writes made after the call and before the first Get
	// of its future, and has its conflict range only from then on.
	GetRange(r Range, o RangeOptions) Future[[]KeyValue]
}

// ReadTransaction is a read-only transaction.
type ReadTransaction interface {
	Reader

	// Cancel ends the transaction and frees its resources; later reads fail with
	// ErrUsed. It is safe to call more than once.
	Cancel()
}

// Transaction reads and writes. Writes stay in the transaction until Commit. Limits
// are checked no later than at Commit: a key, value or transaction over its limit
// makes Commit fail with ErrTooLarge, and nothing is written. After Commit or Cancel
// every read and every Commit fails with ErrUsed, and writes do nothing.
type Transaction interface {
	Reader

	// Snapshot returns a reader of the same state, own writes included, whose
	// reads add no read conflict range.
	Snapshot() Reader

	// Set writes value under key.
	Set(key, value []byte)

	// Clear removes key.
	Clear(key []byte)

	// ClearRange removes all keys of r.
	ClearRange(r Range)

	// Add adds delta to the value of key, a little-endian two's-complement int64 that wraps around;
	// an absent value counts as 0. It adds no read conflict range, so Adds never conflict with each
	// other. A value of another length is first truncated to eight bytes or padded with zero bytes.
	Add(key []byte, delta int64)

	// CompareAndClear removes key if its value equals value. Like Add it adds
	// no read conflict range.
	CompareAndClear(key, value []byte)

	// AddReadConflict acts as if r had been read.
	AddReadConflict(r Range)

	// AddWriteConflict acts as if r had been written, for the conflict checks
	// of other transactions; it changes nothing.
	AddWriteConflict(r Range)

	// Commit ends the transaction and makes its writes visible. The future is ready
	// when they are durable. The transaction must not be used any more.
	//
	// Errors of the future: ErrConflict, ErrTooOld, ErrThrottled, ErrTooLarge, ErrUnavailable,
	// ErrCorrupt, ErrClosed, ErrUsed, or the error of a context that had ended before: nothing was
	// written. ErrCommitUnknown, and any error wrapping it, such as a context that ended during the
	// commit: the writes were made, were not made, or will be made in a moment.
	Commit() Future[struct{}]

	// Turn says, in a serial engine that is not shared, whether the store is as an earlier
	// transaction left it: if that has the turn before this one's, all that it wrote is in the
	// state that this one reads, and nobody else wrote in between. It grows, from 1 on, by more
	// than one after a transaction that was not committed. In all other engines it is 0.
	Turn() int64

	// Cancel ends the transaction without writing. After Commit, or a second
	// time, it does nothing, so it is safe to defer.
	Cancel()
}

// Range is the keys k with Begin <= k < End. It is empty if Begin is not below End.
type Range struct {
	Begin, End []byte
}

// Empty reports whether r contains no key.
func (r Range) Empty() bool { return bytes.Compare(r.Begin, r.End) >= 0 }

// SingleKey returns the range that holds only key.
func SingleKey(key []byte) Range {
	end := make([]byte, len(key)+1)
	copy(end, key)
	return Range{Begin: end[:len(key):len(key)], End: end}
}

// RangeOptions says how to read a range.
type RangeOptions struct {
	// Limit is the maximum number of pairs to return; 0 means all.
	Limit int
	// Bytes ends the read with the pair with which the values returned have this many bytes
	// together; 0 means no bound. So a read returns at least one pair if there is one, and
	// one value may go beyond the bound. Keys do not count.
	Bytes int
	// Reverse returns the last pairs first.
	Reverse bool
}

// Full reports whether a read with these options returned as much as it may, so that there can be
// more in its range than pairs. Otherwise pairs are all that there is.
func (o RangeOptions) Full(pairs []KeyValue) bool {
	if o.Limit > 0 && len(pairs) == o.Limit {
		return true
	}
	if o.Bytes == 0 {
		return false
	}
	size := 0
	for _, pair := range pairs {
		size += len(pair.Value)
	}
	return size >= o.Bytes
}

// Examined returns the part of r that a read with these options had to examine to return pairs.
func (o RangeOptions) Examined(r Range, pairs []KeyValue) Range {
	if !o.Full(pairs) {
		return r
	}
	last := SingleKey(pairs[len(pairs)-1].Key)
	if o.Reverse {
		return Range{Begin: last.Begin, End: r.End}
	}
	return Range{Begin: r.Begin, End: last.End}
}

// KeyValue is one pair of a range.
type KeyValue struct {
	Key, Value []byte
}

// Future is a result that may not be known yet. Get waits for it. It may be called
// more than once, by one goroutine at a time, and always returns the same.
type Future[T any] interface {
	Get() (T, error)
}

// Ready returns a future whose result is known, for engines that answer at once.
func Ready[T any](value T, err error) Future[T] {
	return ready[T]{value, err}
}

type ready[T any] struct {
	value T
	err   error
}

func (r ready[T]) Get() (T, error) { return r.value, r.err }
