// Package kv is the contract between the queues and their store: an ordered key-value store with
// strictly serializable transactions.
//
// Vocabulary, semantics and limits come from FoundationDB. So FoundationDB itself is a thin engine,
// and every other engine behaves like it. Packages fdbkv, pebblekv and memkv are engines:
// FoundationDB, a folder on the local disk, and memory.
//
// # Transactions
//
// [Transact] runs a function in a transaction, commits it, and retries it after conflicts. [Update]
// does the same for work without a result, [View] for work that only reads.
//
// Below them, [Database.Begin] starts a transaction, which sees one consistent state of the store
// plus its own writes. Commit makes all of its writes visible at once, or none. What a transaction
// reads is added to its read conflict ranges, except through [Transaction.Snapshot]. Commit fails
// with [ErrConflict] if another transaction has written into one of those ranges and committed in
// the meantime. A serial engine (see [Traits]) never reports a conflict, but gives the same
// results.
//
// A transaction that wrote nothing commits without conflict. Its Commit reports success only when
// everything that it read is durable.
//
// [Database.BeginRead] starts a read-only transaction. It sees only durable state, and everything
// committed before it began. It waits for no writer and needs no commit.
//
// # Durability
//
// When the future returned by Commit is ready without error, the writes survive the end of the
// process. In engines that write to disk they also survive a power cut.
//
// # Bytes
//
// An engine neither keeps nor changes the slices that it is given once the call has returned. The
// slices that it returns belong to the caller and stay valid after the transaction has ended.
//
// # Concurrency
//
// A Database is safe for concurrent use. Only one goroutine at a time may use a transaction.
//
// # Errors
//
// Engines wrap the errors of this package; compare with [errors.Is]. [Retryable] and
// [MaybeCommitted] say what may be done after an error of a commit.
package kv

import (
	"bytes"
	"context"
	"errors"
	"slices"
)

// Limits of every engine, in bytes. They are FoundationDB's.
const (
	// MaxKeySize is the length of the longest key, in bytes.
	MaxKeySize = 10_000

	// MaxValueSize is the length of the longest value, in bytes.
	MaxValueSize = 100_000

	// MaxTransactionSize bounds the keys and values that a transaction writes and its conflict
	// ranges, all together, in bytes.
	MaxTransactionSize = 10_000_000
)

// Errors of every engine. Engines wrap them with details. The text of an error may reach people who
// have no access to the machine of the store, so it names no files or hosts: see [WithCause].
var (
	// ErrConflict: another transaction wrote what this one had read. Nothing was written.
	// FoundationDB's not_committed (1020).
	ErrConflict = errors.New("kv: conflict with another transaction")

	// ErrTooOld: the transaction was open for too long (about five seconds) to be checked against
	// others. Nothing was written. FoundationDB's transaction_too_old (1007).
	ErrTooOld = errors.New("kv: transaction is too old")

	// ErrThrottled: the store asks to try again later. Nothing was written.
	ErrThrottled = errors.New("kv: the store asks to try again later")

	// ErrCommitUnknown: the commit may have happened, may not have, or may still happen.
	// FoundationDB's commit_unknown_result (1021), and any other reason to stop waiting for a
	// commit that has started.
	ErrCommitUnknown = errors.New("kv: the commit may or may not have happened")

	// ErrTooLarge: a key, a value or the transaction is over its limit. Nothing was written.
	ErrTooLarge = errors.New("kv: key, value or transaction is too large")

	// ErrUnavailable: the store cannot be reached, or cannot write, for example because the disk is
	// full. Nothing was written.
	ErrUnavailable = errors.New("kv: the store is unavailable")

	// ErrCorrupt: stored data is damaged, missing or cannot be read. Trying again does not help;
	// somebody has to repair the store. Nothing was written.
	ErrCorrupt = errors.New("kv: stored data cannot be read")

	// ErrClosed: the database was closed. Nothing was written.
	ErrClosed = errors.New("kv: the database is closed")

	// ErrBlind: a blind transaction has read what it may have written itself. Nothing was written;
	// run it again without BeginOptions.Blind.
	ErrBlind = errors.New("kv: a blind transaction reads what it may have written")

	// ErrUsed: the transaction was already committed or cancelled.
	ErrUsed = errors.New("kv: the transaction has ended")

	// ErrInternal: the store failed in a way that it should not. Nothing was written.
	ErrInternal = errors.New("kv: the store failed")
)

// Retryable reports whether err says that nothing was written and that the same work may succeed in
// a new transaction: ErrConflict, ErrTooOld and ErrThrottled.
func Retryable(err error) bool {
	if MaybeCommitted(err) {
		return false
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrThrottled)
}

// OfStore reports whether err is one of an engine: an error of this package, or of a context. Each
// error of a Database and of a Transaction is one.
func OfStore(err error) bool {
	return slices.ContainsFunc([]error{
		ErrConflict, ErrTooOld, ErrThrottled, ErrCommitUnknown, ErrTooLarge, ErrUnavailable,
		ErrCorrupt, ErrClosed, ErrBlind, ErrUsed, ErrInternal, context.Canceled,
		context.DeadlineExceeded,
	}, func(of error) bool { return errors.Is(err, of) })
}

// MaybeCommitted reports whether the transaction may have committed despite err.
func MaybeCommitted(err error) bool { return errors.Is(err, ErrCommitUnknown) }

// Database is one store. It is safe for concurrent use.
//
// A decorator embeds the Database that it wraps. So it forwards whatever it does not change, above
// all Traits and Check.
type Database interface {
	// Traits says what kind of engine this is. It is cheap and always returns the same value.
	Traits() Traits

	// Begin starts a transaction. It reads the store as it was at some time before Begin returned,
	// so a time taken after Begin is no older than the data, however long the process stood still.
	// In a serial engine Begin waits for the writers before it.
	//
	// The context bounds the whole life of the transaction: when it ends, pending and later calls
	// fail with its error.
	//
	// Errors: ErrClosed, ErrThrottled, ErrUnavailable, ErrCorrupt, the context's error.
	Begin(ctx context.Context, o BeginOptions) (Transaction, error)

	// BeginRead starts a read-only transaction over the durable state. The caller must Cancel it.
	// The context bounds its life as in Begin, and the errors are the same.
	BeginRead(ctx context.Context) (ReadTransaction, error)

	// Check returns nil as long as nothing is known to be wrong with the store. It reports what
	// transactions may not notice: files that were removed, or damage to data that they do not
	// read. It costs next to nothing, so it can be called often.
	//
	// Errors: ErrClosed; ErrUnavailable while the store cannot write; ErrCorrupt once any reader
	// could not read some data.
	Check() error

	// Close closes the store. Transactions that are still open fail with ErrClosed. It is safe to
	// call more than once.
	Close() error
}

// Traits is what sets an engine apart from others under the same contract.
type Traits struct {
	// Pipelines: a transaction that begins once Commit of an earlier one has returned sees its
	// writes, even if the future of the commit is not ready yet. So the two cannot conflict.
	// Callers use it to overlap work with the wait for durability.
	Pipelines bool

	// Serial: one writer runs at a time. Begin waits while another transaction is open, and there
	// are no conflicts. In other engines any number of transactions may be open, even in one
	// goroutine.
	Serial bool

	// Shared: others may use the same store at the same time, each through a Database of its own,
	// for example from other machines. Without it, this Database is the only way into its store.
	Shared bool
}

// BeginOptions says what a transaction is for. The zero value promises nothing.
type BeginOptions struct {
	// Blind says that the transaction will hardly read what it has written itself. Such a read may
	// fail with ErrBlind, and then so does everything after it, Commit included. Engines save work
	// with it.
	Blind bool

	// Shrinks says that the transaction removes data, or puts removed data back, apart from a few
	// bytes of bookkeeping. An engine that keeps space in reserve admits it even when the disk is
	// nearly full. Otherwise it makes no difference.
	Shrinks bool
}

// Reader reads in a transaction. Reads return futures, so an engine may start them at once and run
// several in parallel. A read sees the writes that the transaction made before the call, and none
// made later.
//
// Errors of the futures: ErrTooOld, ErrThrottled, ErrUnavailable, ErrCorrupt, ErrClosed, ErrUsed,
// ErrBlind, ErrInternal, the context's error.
type Reader interface {
	// Get returns the value of key, or nil if there is none. An empty value is not nil.
	Get(key []byte) Future[[]byte]

	// GetRange returns the pairs of r in the order of their keys, or from the last to the first if
	// o.Reverse. It stops at the bounds of o.
	//
	// Its read conflict range covers only the part of r that it had to examine: up to and including
	// the last key returned if the result is o.Full, all of r otherwise. With o.Bytes, the read may
	// also see writes made after the call and before the first Get of its future, and it has its
	// conflict range only from then on.
	GetRange(r Range, o RangeOptions) Future[[]KeyValue]
}

// ReadTransaction is a read-only transaction.
type ReadTransaction interface {
	Reader

	// Cancel ends the transaction and frees its resources. Later reads fail with ErrUsed. It is
	// safe to call more than once.
	Cancel()
}

// Transaction reads and writes. Writes stay in the transaction until Commit.
//
// Limits are checked at Commit or earlier: if a key, a value or the transaction is over its limit,
// Commit fails with ErrTooLarge and nothing is written. After Commit or Cancel, every read and
// every Commit fails with ErrUsed, and writes do nothing.
type Transaction interface {
	Reader

	// Snapshot returns a reader of the same state, own writes included. Its reads add no read
	// conflict range.
	Snapshot() Reader

	// Set writes value under key.
	Set(key, value []byte)

	// Clear removes key.
	Clear(key []byte)

	// ClearRange removes all keys of r.
	ClearRange(r Range)

	// Add adds delta to the value of key, a little-endian two's-complement int64 that wraps around.
	// An absent value counts as 0. A value of another length is first truncated to eight bytes or
	// padded with zero bytes. Add adds no read conflict range, so Adds never conflict with each
	// other.
	Add(key []byte, delta int64)

	// CompareAndClear removes key if its value equals value. Like Add it adds no read conflict
	// range.
	CompareAndClear(key, value []byte)

	// AddReadConflict acts as if r had been read.
	AddReadConflict(r Range)

	// AddWriteConflict acts as if r had been written, for the conflict checks of other
	// transactions. It changes nothing.
	AddWriteConflict(r Range)

	// Commit ends the transaction and makes its writes visible. The future is ready when they are
	// durable.
	//
	// Nothing was written if the future returns ErrConflict, ErrTooOld, ErrThrottled, ErrTooLarge,
	// ErrUnavailable, ErrCorrupt, ErrClosed, ErrUsed, ErrBlind, ErrInternal, or the error of a
	// context that had ended before Commit. With ErrCommitUnknown, the writes were made, were not
	// made, or will be made in a moment; if the context ended during the commit, its error wraps
	// ErrCommitUnknown.
	Commit() Future[struct{}]

	// Turn tells, in a serial engine that is not shared, whether the store is still as an earlier
	// transaction left it. Turns grow from 1 on. If the turn of this transaction is the turn of the
	// earlier one plus one, this one reads everything that the earlier one wrote, and nobody else
	// has written in between. After a transaction that was not committed, turns grow by more than
	// one. In all other engines Turn is 0.
	Turn() int64

	// Cancel ends the transaction without writing. After Commit, or a second time, it does nothing,
	// so it is safe to defer.
	Cancel()
}

// Range is all keys k with Begin <= k < End. It is empty if Begin is not below End.
type Range struct {
	Begin, End []byte
}

// Empty reports whether r contains no key.
func (r Range) Empty() bool { return bytes.Compare(r.Begin, r.End) >= 0 }

// Clone returns r with bytes of its own.
func (r Range) Clone() Range {
	return Range{Begin: bytes.Clone(r.Begin), End: bytes.Clone(r.End)}
}

// SingleKey returns the range that holds only key. It does not keep key.
func SingleKey(key []byte) Range {
	end := make([]byte, len(key)+1)
	copy(end, key)
	return Range{Begin: end[:len(key):len(key)], End: end}
}

// RangeOptions says how to read a range.
type RangeOptions struct {
	// Limit is the maximum number of pairs to return. 0 means no limit.
	Limit int

	// Bytes ends the read once the values returned have this many bytes together. 0 means no bound.
	// The last value may go beyond the bound, so a read returns at least one pair if there is one.
	// Keys do not count.
	Bytes int

	// Reverse returns the last pairs first.
	Reverse bool
}

// Full reports whether a read with these options that returned pairs has reached a bound, so that
// its range may hold more. Otherwise pairs are all that there is.
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
// That is the read conflict range of the read.
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

// Future is a result that may not be known yet.
type Future[T any] interface {
	// Get waits for the result. It may be called more than once, by one goroutine at a time, and
	// always returns the same.
	Get() (T, error)
}

// Ready returns a future whose result is known already, for engines that answer at once.
func Ready[T any](value T, err error) Future[T] {
	return ready[T]{value, err}
}

type ready[T any] struct {
	value T
	err   error
}

func (r ready[T]) Get() (T, error) { return r.value, r.err }
