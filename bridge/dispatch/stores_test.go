package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// hookedDB is a store that calls a test where transactions begin and commit. A nil hook leaves the
// store as it is.
type hookedDB struct {
	kv.Database
	traits *kv.Traits
	begin  func(context.Context) context.Context // returns the transaction's
	commit func(*hookedTransaction) kv.Future[struct{}]
	damage []byte // prefix of keys that cannot be read
}

type hookedTransaction struct {
	kv.Transaction
	db      *hookedDB
	largest int // value that was set
}

func (db *hookedDB) Traits() kv.Traits {
	if db.traits != nil {
		return *db.traits
	}
	return db.Database.Traits()
}

func (db *hookedDB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if db.begin != nil {
		ctx = db.begin(ctx)
	}

	tx, err := db.Database.Begin(ctx, o)
	return &hookedTransaction{Transaction: tx, db: db}, err
}

func (tx *hookedTransaction) Set(key, value []byte) {
	tx.largest = max(tx.largest, len(value))
	tx.Transaction.Set(key, value)
}

func (tx *hookedTransaction) Commit() kv.Future[struct{}] {
	if tx.db.commit == nil {
		return tx.Transaction.Commit()
	}
	return tx.db.commit(tx)
}

func (tx *hookedTransaction) GetRange(keys kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return damagedReader{tx.Transaction, tx.db.damage}.GetRange(keys, o)
}

func (tx *hookedTransaction) Snapshot() kv.Reader {
	return damagedReader{tx.Transaction.Snapshot(), tx.db.damage}
}

func (db *hookedDB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := db.Database.BeginRead(ctx)
	return hookedRead{tx, db}, err
}

type hookedRead struct {
	kv.ReadTransaction
	db *hookedDB
}

func (tx hookedRead) GetRange(keys kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return damagedReader{tx.ReadTransaction, tx.db.damage}.GetRange(keys, o)
}

type damagedReader struct {
	kv.Reader
	prefix []byte
}

func (r damagedReader) GetRange(keys kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if r.prefix != nil && bytes.HasPrefix(keys.Begin, r.prefix) {
		return kv.Ready[[]kv.KeyValue](nil, fmt.Errorf("%w: a block", kv.ErrCorrupt))
	}
	return r.Reader.GetRange(keys, o)
}

// slowDB is a store whose commits take time, so that transactions overlap.
func slowDB(db kv.Database, takes time.Duration) kv.Database {
	return &hookedDB{Database: db, commit: func(tx *hookedTransaction) kv.Future[struct{}] {
		time.Sleep(takes)
		return tx.Transaction.Commit()
	}}
}

// withLater is inBubble with a store that pipelines, whose commits are durable once the test says
// so.
func withLater(
	t *testing.T, configure func(*Options), test func(w *waiting, durable chan struct{}),
) {
	t.Helper()
	var durable chan struct{}
	inBubble(t, func(o *Options) {
		durable = make(chan struct{})
		o.DB = &hookedDB{
			Database: memkv.New(memkv.Options{}), traits: &kv.Traits{Pipelines: true},
			commit: func(tx *hookedTransaction) kv.Future[struct{}] {
				return laterFuture{tx.Transaction.Commit(), durable}
			},
		}

		configure(o)
	}, func(w *waiting) { test(w, durable) })
}

type laterFuture struct {
	kv.Future[struct{}]
	durable chan struct{}
}

func (f laterFuture) Get() (struct{}, error) {
	<-f.durable
	return f.Future.Get()
}

// heldDB is an empty store whose commits wait while the test says so, and that takes no large
// values once it is full. It knows how much time the transaction had that had least.
type heldDB struct {
	hookedDB
	held  chan struct{}
	full  atomic.Bool
	least atomic.Int64
}

const tooLarge = 1000

func newHeldDB() *heldDB {
	db := &heldDB{hookedDB: hookedDB{Database: memkv.New(memkv.Options{})}}
	db.begin = func(ctx context.Context) context.Context {
		if deadline, ok := ctx.Deadline(); ok {
			db.least.Store(min(db.least.Load(), int64(time.Until(deadline))))
		}
		return ctx
	}

	db.commit = func(tx *hookedTransaction) kv.Future[struct{}] {
		if held := db.held; held != nil {
			<-held
		}

		if tx.largest > tooLarge && db.full.Load() {
			tx.Cancel()
			return kv.Ready(struct{}{}, fmt.Errorf("%w: the disk is full", kv.ErrUnavailable))
		}

		return tx.Transaction.Commit()
	}

	return db
}

// withHeld is inBubble with a store that the test holds up.
func withHeld(t *testing.T, configure func(*Options), test func(w *waiting, db *heldDB)) {
	t.Helper()
	var db *heldDB
	inBubble(t, func(o *Options) {
		db = newHeldDB()
		o.DB = db

		if configure != nil {
			configure(o)
		}
	}, func(w *waiting) { test(w, db) })
}

// deafDB is a store that stops answering while the test says so, and does not notice that contexts
// end.
type deafDB struct {
	hookedDB
	stuck atomic.Pointer[chan struct{}] // nil unless it is
}

func newDeafDB(db kv.Database) *deafDB {
	// The traits keep a batch from waiting for the one before it with a sync.Once, during which the
	// time of a bubble would stand still.
	d := &deafDB{hookedDB: hookedDB{Database: db, traits: &kv.Traits{Serial: true, Shared: true}}}
	d.begin = func(context.Context) context.Context { return context.Background() }

	d.commit = func(tx *hookedTransaction) kv.Future[struct{}] {
		if stuck := d.stuck.Load(); stuck != nil {
			<-*stuck
		}
		return tx.Transaction.Commit()
	}

	return d
}

func (d *deafDB) stop() { d.stuck.Store(new(make(chan struct{}))) }

func (d *deafDB) goOn() { close(*d.stuck.Swap(nil)) }
