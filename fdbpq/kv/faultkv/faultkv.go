// Package faultkv injects faults between a caller and any store, for tests: the errors that a
// distributed store returns now and then, at random from a seed or scripted.
//
// # Where faults occur
//
//   - [Outage] and [Delay] at every call that may fail: Begin, BeginRead, reads, Commit.
//   - [TooOld] and [Throttled] at reads, and at the Commit of a transaction that wrote. As in a
//     real store, all later calls of the transaction fail in the same way.
//   - [Conflict] and the four kinds of unknown commit at the Commit of a transaction that wrote.
//
// # Unknown commits
//
// The caller gets kv.ErrCommitUnknown. The commit was lost, was made, or is made later: before the
// next transaction begins, or when the next one commits. In the last case, a retry that looked for
// traces of its first attempt and found none must fail with a conflict.
//
// [DB.Land] and Close make the commits that are still outstanding, even if the contexts of their
// transactions have ended. Such a commit may fail like any other.
//
// # Concurrency
//
// A DB is safe for concurrent use. With one goroutine, the same seed and the same calls give the
// same faults.
package faultkv

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Options say which faults occur at random. The zero value means none.
type Options struct {
	// Seed of the random faults.
	Seed uint64

	// Rates is the probability of each fault, from 0 to 1, at each call where it can occur. They
	// add up to at most 1.
	Rates map[Fault]float64

	// MaxDelay is the longest Delay. 0 means 10 ms.
	MaxDelay time.Duration
}

const defaultMaxDelay = 10 * time.Millisecond

// DB is a store with faults. It implements kv.Database.
type DB struct {
	kv.Database
	options Options

	mu struct {
		sync.Mutex
		random *rand.Rand
		script []Fault
		outage bool
		counts map[Fault]int
		late   map[Fault][]kv.Transaction // to commit later
	}
}

var _ kv.Database = (*DB)(nil)

// New returns a DB that injects faults in front of inner. Closing it closes inner.
func New(inner kv.Database, o Options) *DB {
	o.MaxDelay = cmp.Or(o.MaxDelay, defaultMaxDelay)
	db := &DB{Database: inner, options: o}
	db.mu.random = rand.New(rand.NewPCG(o.Seed, 0))
	db.mu.counts, db.mu.late = map[Fault]int{}, map[Fault][]kv.Transaction{}
	return db
}

// Next sets the faults of the next commits of transactions that wrote, one for each, in place of
// random ones. None lets a commit pass. Faults set by earlier calls and not yet used come first.
func (db *DB) Next(script ...Fault) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.script = append(db.mu.script, script...)
}

// SetOutage begins or ends an outage, during which every call fails with Outage.
func (db *DB) SetOutage(on bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.outage = on
}

// Counts returns how many faults of each kind occurred.
func (db *DB) Counts() map[Fault]int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return maps.Clone(db.mu.counts)
}

// Land makes the commits that were put off. Their errors are lost.
func (db *DB) Land() { db.land(UnknownBeforeNext, UnknownDuringNext) }

// land makes the commits that these faults put off. Their callers are gone, so nobody is left to
// report an error to.
func (db *DB) land(faults ...Fault) {
	db.mu.Lock()
	var late []kv.Transaction
	for _, fault := range faults {
		late = append(late, db.mu.late[fault]...)
		delete(db.mu.late, fault)
	}
	db.mu.Unlock()

	for _, tx := range late {
		_, _ = tx.Commit().Get()
	}
}

// Begin implements kv.Database.
func (db *DB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if err := db.strike(ctx, db.pick(false, Delay, Outage)); err != nil {
		return nil, err
	}

	db.land(UnknownBeforeNext)

	// A commit that is made later must not end with its caller.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, cancel)
	tx, err := db.Database.Begin(inner, o)
	if err != nil {
		detach()
		return nil, cmp.Or(ctx.Err(), err)
	}

	r := reader{&session{db: db, ctx: ctx}, tx}
	return &transaction{reader: r, inner: tx, detach: detach}, nil
}

// BeginRead implements kv.Database.
func (db *DB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	if err := db.strike(ctx, db.pick(false, Delay, Outage)); err != nil {
		return nil, err
	}
	tx, err := db.Database.BeginRead(ctx)
	if err != nil {
		return nil, err
	}
	return &readTransaction{reader{&session{db: db, ctx: ctx}, tx}, tx}, nil
}

// Traits implements kv.Database. The engine keeps its traits, except for pipelining: after a commit
// of unknown outcome, a transaction may begin before the commit is made.
func (db *DB) Traits() kv.Traits {
	traits := db.Database.Traits()
	traits.Pipelines = false
	return traits
}

// Check implements kv.Database.
func (db *DB) Check() error {
	db.mu.Lock()
	outage := db.mu.outage
	db.mu.Unlock()
	if outage {
		return Outage.err()
	}
	return db.Database.Check()
}

// Close implements kv.Database.
func (db *DB) Close() error {
	db.Land()
	return db.Database.Close()
}

// pick picks one of kinds by their rates, or None, and counts the fault. The script, if it applies,
// comes before random faults.
func (db *DB) pick(scripted bool, kinds ...Fault) (fault Fault) {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case db.mu.outage:
		fault = Outage
	case scripted && len(db.mu.script) > 0:
		fault, db.mu.script = db.mu.script[0], db.mu.script[1:]
	default:
		x := db.mu.random.Float64()
		i := slices.IndexFunc(kinds, func(kind Fault) bool {
			x -= db.options.Rates[kind]
			return x < 0
		})
		if i >= 0 {
			fault = kinds[i]
		}
	}

	if fault != None {
		db.mu.counts[fault]++
	}
	return fault
}

// strike applies fault to a call: the call takes time or fails. A context that has ended takes
// precedence.
func (db *DB) strike(ctx context.Context, fault Fault) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault != Delay {
		return fault.err()
	}

	db.mu.Lock()
	d := time.Duration(db.mu.random.Int64N(int64(db.options.MaxDelay)))
	db.mu.Unlock()

	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
