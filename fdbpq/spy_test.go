package fdbpq_test

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// spy is a store that says what is read and written. Functions may be nil.
type spy struct {
	kv.Database
	asked func(method string, key []byte) // before it is done; of a range, its begin
	found func(pairs ...kv.KeyValue)      // by a read
}

func (s *spy) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := s.Database.Begin(ctx, o)
	return spiedTransaction{tx, spiedReader{tx, s, ""}}, err
}

func (s *spy) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := s.Database.BeginRead(ctx)
	return spiedReads{spiedReader{tx, s, ""}, tx}, err
}

type spiedReader struct {
	kv.Reader
	*spy
	snapshot string
}

func (r spiedReader) note(method string, key []byte) {
	if r.asked != nil {
		r.asked(r.snapshot+method, key)
	}
}

func (r spiedReader) report(pairs ...kv.KeyValue) {
	if r.found != nil {
		r.found(pairs...)
	}
}

func (r spiedReader) Get(key []byte) kv.Future[[]byte] {
	r.note("get", key)
	value, err := r.Reader.Get(key).Get()
	r.report(kv.KeyValue{Key: key, Value: value})
	return kv.Ready(value, err)
}

func (r spiedReader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	r.note("range", span.Begin)
	pairs, err := r.Reader.GetRange(span, o).Get()
	r.report(pairs...)
	return kv.Ready(pairs, err)
}

type spiedReads struct {
	spiedReader
	ends interface{ Cancel() }
}

func (tx spiedReads) Cancel() { tx.ends.Cancel() }

type spiedTransaction struct {
	kv.Transaction
	r spiedReader
}

func (tx spiedTransaction) Get(key []byte) kv.Future[[]byte] { return tx.r.Get(key) }

func (tx spiedTransaction) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return tx.r.GetRange(span, o)
}

func (tx spiedTransaction) Snapshot() kv.Reader {
	return spiedReader{tx.Transaction.Snapshot(), tx.r.spy, "snapshot "}
}

func (tx spiedTransaction) Set(key, value []byte) {
	tx.r.note("set", key)
	tx.Transaction.Set(key, value)
}

func (tx spiedTransaction) Clear(key []byte) {
	tx.r.note("clear", key)
	tx.Transaction.Clear(key)
}

func (tx spiedTransaction) ClearRange(span kv.Range) {
	tx.r.note("clear range", span.Begin)
	tx.Transaction.ClearRange(span)
}

func (tx spiedTransaction) Add(key []byte, delta int64) {
	tx.r.note("add", key)
	tx.Transaction.Add(key, delta)
}

func (tx spiedTransaction) CompareAndClear(key, value []byte) {
	tx.r.note("compare and clear", key)
	tx.Transaction.CompareAndClear(key, value)
}

func (tx spiedTransaction) AddReadConflict(span kv.Range) {
	tx.r.note("read conflict", span.Begin)
	tx.Transaction.AddReadConflict(span)
}

func (tx spiedTransaction) AddWriteConflict(span kv.Range) {
	tx.r.note("write conflict", span.Begin)
	tx.Transaction.AddWriteConflict(span)
}
