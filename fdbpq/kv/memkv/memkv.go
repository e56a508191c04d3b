// Package memkv is a store in memory. It is the reference engine for tests: simple enough to be
// obviously right, and optimistic like FoundationDB, so that conflicts, phantoms and retries occur
// without a cluster.
//
// Every transaction works on a copy-on-write clone of the state that it began with. It applies its
// writes to the clone at once, so it can read them. Commit compares what the transaction read with
// what others have committed in the meantime, and applies the writes again to the newest state. All
// of that happens under one lock. The package starts no goroutine.
//
// Nothing survives the process, so "durable" here means committed.
package memkv

import (
	"bytes"
	"cmp"
	"context"
	"sync"

	"github.com/google/btree"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const defaultHistory = 10_000

// Options of a store. The zero value is ready to use.
type Options struct {
	// History is how many of the latest commits are kept. A transaction that began before the
	// oldest of them fails with kv.ErrTooOld, as in FoundationDB after five seconds. 0 means
	// 10,000.
	History int
}

// DB is a store in memory. It implements kv.Database and is safe for concurrent use.
type DB struct {
	history int

	mu struct {
		sync.Mutex
		closed  bool
		newest  *state
		version int          // number of commits so far
		commits [][]kv.Range // what each of the latest commits wrote, oldest first
	}
}

var _ kv.Database = (*DB)(nil)

// state is all pairs, by key. Keys and values in it are never changed in place.
type state = btree.BTreeG[kv.KeyValue]

// New returns an empty store. Close it only to make later calls fail: it holds nothing but memory.
func New(o Options) *DB {
	db := &DB{history: cmp.Or(o.History, defaultHistory)}
	db.mu.newest = btree.NewG(32, func(a, b kv.KeyValue) bool {
		return bytes.Compare(a.Key, b.Key) < 0
	})
	return db
}

// Begin implements kv.Database. It never waits. A blind transaction cannot read what it has
// written.
func (db *DB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := db.begin(ctx)
	if err != nil {
		return nil, err
	}
	tx.blind = o.Blind
	return tx, nil
}

// BeginRead implements kv.Database.
func (db *DB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := db.begin(ctx)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

func (db *DB) begin(ctx context.Context) (*transaction, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.closed {
		return nil, kv.ErrClosed
	}

	return &transaction{db: db, ctx: ctx, began: db.mu.version, state: db.mu.newest.Clone()}, nil
}

// Traits implements kv.Database. It has FoundationDB's traits: in a test, several services of one
// process share a DB as they would share a cluster.
func (db *DB) Traits() kv.Traits { return kv.Traits{Shared: true} }

// Check implements kv.Database.
func (db *DB) Check() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.closed {
		return kv.ErrClosed
	}
	return nil
}

// Close implements kv.Database. It never fails.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.closed = true
	return nil
}

// check returns why a transaction that began at a version cannot be used any more, or nil.
func (db *DB) check(began int) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.checkLocked(began)
}

func (db *DB) checkLocked(began int) error {
	if db.mu.closed {
		return kv.ErrClosed
	}
	if began < db.forgottenLocked() {
		return kv.ErrTooOld
	}
	return nil
}

// forgottenLocked is the number of commits that are no longer kept.
func (db *DB) forgottenLocked() int { return db.mu.version - len(db.mu.commits) }

// commit checks tx against the transactions that have committed since it began, and applies its
// writes to the newest state.
func (db *DB) commit(tx *transaction) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.closed {
		return kv.ErrClosed
	}
	if len(tx.writes) == 0 {
		return nil
	}
	if tx.tooLarge || tx.size > kv.MaxTransactionSize {
		return kv.ErrTooLarge
	}

	// Only reads can be outdated. A transaction without reads may be of any age.
	if len(tx.reads) > 0 {
		if err := db.checkLocked(tx.began); err != nil {
			return err
		}
		for _, writes := range db.mu.commits[tx.began-db.forgottenLocked():] {
			if overlap(tx.reads, writes) {
				return kv.ErrConflict
			}
		}
	}

	for _, mutate := range tx.mutations {
		mutate(db.mu.newest)
	}

	db.mu.version++
	db.mu.commits = append(db.mu.commits, tx.writes)
	if len(db.mu.commits) > db.history {
		db.mu.commits = db.mu.commits[1:]
	}

	return nil
}

// overlap reports whether some key is in a range of a and in a range of b.
func overlap(a, b []kv.Range) bool {
	for _, x := range a {
		for _, y := range b {
			if bytes.Compare(x.Begin, y.End) < 0 && bytes.Compare(y.Begin, x.End) < 0 {
				return true
			}
		}
	}
	return false
}
