// Package countkv counts, for tests, the reads of each transaction, and the round trips that they
// would take if the store were behind a network.
//
// Reads that are started together share a round trip. Each transaction has a clock that counts
// round trips: a read is ready one round trip after its start, and waiting for it advances the
// clock to that time. So starting a hundred reads and then waiting for all of them takes one round
// trip. Waiting for each before starting the next takes a hundred.
package countkv

import (
	"context"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Cost is what one transaction cost.
type Cost struct {
	// Reads is the number of calls of Get and GetRange.
	Reads int

	// Rounds is the number of round trips spent waiting for reads. Those for beginning and
	// committing the transaction do not count.
	Rounds int
}

// DB is a store whose transactions are counted. It implements kv.Database.
type DB struct {
	kv.Database

	mu struct {
		sync.Mutex
		costs []*Cost // in the order the transactions began
		bytes int     // of values read
	}
}

var _ kv.Database = (*DB)(nil)

// New returns a DB that counts the transactions of inner. Closing it closes inner.
func New(inner kv.Database) *DB { return &DB{Database: inner} }

// Take returns the costs of the transactions that have begun since the last call, in the order they
// began.
func (db *DB) Take() []Cost {
	db.mu.Lock()
	defer db.mu.Unlock()
	var costs []Cost
	for _, cost := range db.mu.costs {
		costs = append(costs, *cost)
	}
	db.mu.costs = nil
	return costs
}

// TakeBytes returns how many bytes of values were read since the last call.
func (db *DB) TakeBytes() (n int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	n, db.mu.bytes = db.mu.bytes, 0
	return n
}

// Begin implements kv.Database.
func (db *DB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := db.Database.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return transaction{tx, reader{tx, db.session()}}, nil
}

// BeginRead implements kv.Database.
func (db *DB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := db.Database.BeginRead(ctx)
	if err != nil {
		return nil, err
	}
	return readTransaction{reader{tx, db.session()}, tx}, nil
}

func (db *DB) session() *session {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := &session{db: db}
	db.mu.costs = append(db.mu.costs, &s.cost)
	return s
}

// session is what the readers of one transaction share. The lock of its DB guards it.
type session struct {
	db   *DB
	cost Cost // Rounds is the time
}

// begin counts a read and returns the time it is ready.
func (s *session) begin() (ready int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.cost.Reads++
	return s.cost.Rounds + 1
}

// reader implements kv.Reader.
type reader struct {
	inner kv.Reader
	*session
}

func (r reader) Get(key []byte) kv.Future[[]byte] {
	return future[[]byte]{r.inner.Get(key), r.session, r.begin()}
}

func (r reader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return future[[]kv.KeyValue]{r.inner.GetRange(span, o), r.session, r.begin()}
}

// future is the result of a read.
type future[T any] struct {
	kv.Future[T]
	of    *session
	ready int
}

func (f future[T]) Get() (T, error) {
	value, err := f.Future.Get()
	f.of.end(f.ready, value)
	return value, err
}

// end advances the clock to the time a read is ready, and counts the bytes of its values.
func (s *session) end(ready int, value any) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.cost.Rounds = max(s.cost.Rounds, ready)
	switch v := value.(type) {
	case []byte:
		s.db.mu.bytes += len(v)
	case []kv.KeyValue:
		for _, pair := range v {
			s.db.mu.bytes += len(pair.Value)
		}
	}
}

// transaction implements kv.Transaction.
type transaction struct {
	kv.Transaction
	reader reader
}

func (tx transaction) Get(key []byte) kv.Future[[]byte] { return tx.reader.Get(key) }

func (tx transaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return tx.reader.GetRange(r, o)
}

func (tx transaction) Snapshot() kv.Reader {
	return reader{tx.Transaction.Snapshot(), tx.reader.session}
}

// readTransaction implements kv.ReadTransaction.
type readTransaction struct {
	reader
	inner kv.ReadTransaction
}

func (tx readTransaction) Cancel() { tx.inner.Cancel() }
