//go:build fdb

package fdbkv

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// transaction is a kv.Transaction. If a key or value is too long, the client library makes Commit
// fail.
type transaction struct {
	tr      fdb.Transaction
	ctx     context.Context // of the caller; the transaction ends with it
	open    context.Context // of the DB; the transaction ends with it
	release func()          // frees what the transaction holds
	ended   bool            // set by Commit and Cancel
	failed  error           // why everything fails from now on

	blind bool       // its reads do not see its writes
	own   kv.Written // nothing unless blind

	// The multi-version client crashes if an option is set while it resets the transaction.
	freeing sync.Mutex
	freed   bool
}

// interrupted returns why the transaction was ended from outside, or nil.
func (t *transaction) interrupted() error {
	if t.open.Err() != nil {
		return kv.ErrClosed
	}

	// In a process that stood still, the timer of the context may run later than this.
	if at, limited := t.ctx.Deadline(); limited && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return t.ctx.Err()
}

// usable returns why the transaction cannot be used any more, or nil.
func (t *transaction) usable() error {
	if t.ended {
		return kv.ErrUsed
	}
	if err := t.interrupted(); err != nil {
		return err
	}
	return t.failed
}

// readError wraps an error of a read in its meaning. The client library does not say why a
// transaction was cancelled.
func (t *transaction) readError(err error) error {
	if isEnded(err) {
		if why := t.interrupted(); why != nil {
			return fmt.Errorf("%w: %w", why, err)
		}
	}
	return explain(err)
}

// commitError wraps an error of a commit in its meaning.
func (t *transaction) commitError(err error) error {
	if isEnded(err) {
		if why := t.interrupted(); why != nil {
			return fmt.Errorf("%w: %w: %w", kv.ErrCommitUnknown, why, err)
		}
	}
	return explainCommit(err)
}

func (t *transaction) Get(key []byte) kv.Future[[]byte] {
	return reader{t, t.tr}.Get(key)
}

func (t *transaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return reader{t, t.tr}.GetRange(r, o)
}

func (t *transaction) Snapshot() kv.Reader { return reader{t, t.tr.Snapshot()} }

// writes notes that a key is written. It returns false if the transaction has ended.
func (t *transaction) writes(key []byte) bool {
	if t.blind && !t.ended {
		t.own.Key(key)
	}
	return !t.ended
}

// seesAll fails a blind transaction that reads a range in which it has written.
func (t *transaction) seesAll(r kv.Range) error {
	if t.own.Any() && t.own.Within(r) {
		t.failed = kv.ErrBlind
		return t.failed
	}
	return nil
}

func (t *transaction) Set(key, value []byte) {
	if t.writes(key) {
		t.tr.Set(fdb.Key(key), value)
	}
}

func (t *transaction) Clear(key []byte) {
	if t.writes(key) {
		t.tr.Clear(fdb.Key(key))
	}
}

func (t *transaction) ClearRange(r kv.Range) {
	if t.ended || r.Empty() {
		return
	}
	if t.blind {
		t.own.Range(r)
	}
	t.tr.ClearRange(keyRange(r))
}

func (t *transaction) Add(key []byte, delta int64) {
	if t.writes(key) {
		t.tr.Add(fdb.Key(key), binary.LittleEndian.AppendUint64(nil, uint64(delta)))
	}
}

func (t *transaction) CompareAndClear(key, value []byte) {
	if t.writes(key) {
		t.tr.CompareAndClear(fdb.Key(key), value)
	}
}

func (t *transaction) AddReadConflict(r kv.Range) { t.addConflict(r, t.tr.AddReadConflictRange) }

func (t *transaction) AddWriteConflict(r kv.Range) { t.addConflict(r, t.tr.AddWriteConflictRange) }

func (t *transaction) addConflict(r kv.Range, add func(fdb.ExactRange) error) {
	if t.ended || r.Empty() {
		return
	}
	if err := add(keyRange(r)); err != nil && t.failed == nil {
		t.failed = explain(err)
	}
}

func (t *transaction) Turn() int64 { return 0 }

func (t *transaction) Commit() kv.Future[struct{}] {
	if err := t.usable(); err != nil {
		t.Cancel()
		return kv.Ready(struct{}{}, err)
	}

	t.ended = true
	committed := t.tr.Commit()
	return &future[struct{}]{wait: func() (struct{}, error) {
		err := committed.Get()
		if err != nil {
			err = t.commitError(err)
		}
		t.release()
		return struct{}{}, err
	}}
}

// end ends a transaction that may wait. Until a client library has connected, the multi-version
// client ignores Cancel but not a time limit.
func (t *transaction) end() {
	t.freeing.Lock()
	defer t.freeing.Unlock()
	if !t.freed {
		_ = t.tr.Options().SetTimeout(1) // else the limit of before ends it
		t.tr.Cancel()
	}
}

// reset frees what the transaction holds. Otherwise the binding does when Go's garbage collector
// finds it, which does not know how much memory that is outside Go.
func (t *transaction) reset() {
	t.freeing.Lock()
	defer t.freeing.Unlock()
	t.freed = true
	t.tr.Reset()
}

func (t *transaction) Cancel() {
	if t.ended {
		return
	}
	t.ended = true
	t.release()
}

// readTransaction is a kv.ReadTransaction.
type readTransaction struct{ reader }

func (r readTransaction) Cancel() { r.t.Cancel() }
