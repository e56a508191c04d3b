package faultkv

import (
	"cmp"
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// session is what the readers of one transaction share.
type session struct {
	db  *DB
	ctx context.Context
	err error // why all later calls fail
}

// read returns why a read fails, or nil.
func (s *session) read() error {
	if s.err != nil {
		return s.err
	}

	fault := s.db.pick(false, Delay, Outage, TooOld, Throttled)
	err := s.db.strike(s.ctx, fault)
	if fault == TooOld || fault == Throttled {
		s.err = err
	}

	return err
}

// reader implements kv.Reader.
type reader struct {
	*session
	inner kv.Reader
}

func (r reader) Get(key []byte) kv.Future[[]byte] {
	if err := r.read(); err != nil {
		return kv.Ready[[]byte](nil, err)
	}
	return r.inner.Get(key)
}

func (r reader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if err := r.read(); err != nil {
		return kv.Ready[[]kv.KeyValue](nil, err)
	}
	return r.inner.GetRange(span, o)
}

// readTransaction implements kv.ReadTransaction.
type readTransaction struct {
	reader
	inner kv.ReadTransaction
}

func (tx *readTransaction) Cancel() {
	tx.err = kv.ErrUsed
	tx.inner.Cancel()
}

// transaction implements kv.Transaction.
type transaction struct {
	reader
	inner  kv.Transaction
	detach func() bool // from the context, if that has not ended
	ended  bool
	wrote  bool
}

func (tx *transaction) Snapshot() kv.Reader { return reader{tx.session, tx.inner.Snapshot()} }

func (tx *transaction) Set(key, value []byte) { tx.write(func() { tx.inner.Set(key, value) }) }

func (tx *transaction) Clear(key []byte) { tx.write(func() { tx.inner.Clear(key) }) }

func (tx *transaction) ClearRange(r kv.Range) {
	if !r.Empty() {
		tx.write(func() { tx.inner.ClearRange(r) })
	}
}

func (tx *transaction) Add(key []byte, delta int64) {
	tx.write(func() { tx.inner.Add(key, delta) })
}

func (tx *transaction) CompareAndClear(key, value []byte) {
	tx.write(func() { tx.inner.CompareAndClear(key, value) })
}

func (tx *transaction) AddReadConflict(r kv.Range) {
	if !tx.ended {
		tx.inner.AddReadConflict(r)
	}
}

func (tx *transaction) AddWriteConflict(r kv.Range) {
	if !r.Empty() {
		tx.write(func() { tx.inner.AddWriteConflict(r) })
	}
}

// write runs a write unless the transaction has ended. The transaction of the store may still be
// open then, to be committed later.
func (tx *transaction) write(do func()) {
	if !tx.ended {
		tx.wrote = true
		do()
	}
}

func (tx *transaction) Turn() int64 { return tx.inner.Turn() }

// Commit implements kv.Transaction. Its future is always ready.
func (tx *transaction) Commit() kv.Future[struct{}] {
	err := tx.err
	if err == nil {
		err = tx.commit()
	}
	tx.Cancel()
	return kv.Ready(struct{}{}, err)
}

func (tx *transaction) commit() error {
	if !tx.wrote {
		if err := tx.db.strike(tx.ctx, tx.db.pick(false, Delay, Outage)); err != nil {
			return err
		}
		return tx.commitNow()
	}

	tx.db.land(UnknownDuringNext)
	fault := tx.db.pick(true, commitFaults...)
	err := tx.db.strike(tx.ctx, fault)
	if err == nil {
		return tx.commitNow()
	}
	if !kv.MaybeCommitted(err) {
		return err
	}

	// In a serial store the next transaction could not begin before this one has committed.
	if fault == UnknownBeforeNext && tx.db.Traits().Serial {
		fault = UnknownMade
	}

	switch {
	case fault == UnknownLost:
		return err
	case fault == UnknownMade:
		return cmp.Or(tx.commitNow(), err)
	case !tx.detach():
		return tx.ctx.Err() // It has ended the transaction already.
	}

	tx.ended = true
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.db.mu.late[fault] = append(tx.db.mu.late[fault], tx.inner)
	return err
}

func (tx *transaction) commitNow() error {
	_, err := tx.inner.Commit().Get()
	return err
}

func (tx *transaction) Cancel() {
	tx.err = kv.ErrUsed
	if tx.ended {
		return
	}
	tx.ended = true
	tx.inner.Cancel()
	tx.detach()
}
