//go:build fdb

package testenv

import (
	"context"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// prefixed shows the keys of a database that begin with a prefix, with the prefix
// removed.
type prefixed struct {
	kv.Database
	keyPrefix
}

type keyPrefix string

func (p keyPrefix) key(key []byte) []byte { return append([]byte(p), key...) }

func (p keyPrefix) span(r kv.Range) kv.Range {
	return kv.Range{Begin: p.key(r.Begin), End: p.key(r.End)}
}

func (p prefixed) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := p.Database.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return prefixedTransaction{tx, prefixedReader{tx, p.keyPrefix}}, nil
}

func (p prefixed) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := p.Database.BeginRead(ctx)
	if err != nil {
		return nil, err
	}
	return prefixedRead{prefixedReader{tx, p.keyPrefix}, tx}, nil
}

type prefixedReader struct {
	kv.Reader
	keyPrefix
}

func (r prefixedReader) Get(key []byte) kv.Future[[]byte] { return r.Reader.Get(r.key(key)) }

func (r prefixedReader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return stripped{r.Reader.GetRange(r.span(span), o), len(r.keyPrefix)}
}

// stripped cuts n bytes off each key.
type stripped struct {
	kv.Future[[]kv.KeyValue]
	n int
}

func (s stripped) Get() ([]kv.KeyValue, error) {
	pairs, err := s.Future.Get()
	pairs = slices.Clone(pairs) // Get may be called again
	for i := range pairs {
		pairs[i].Key = pairs[i].Key[s.n:]
	}
	return pairs, err
}

type prefixedRead struct {
	prefixedReader
	tx kv.ReadTransaction
}

func (r prefixedRead) Cancel() { r.tx.Cancel() }

type prefixedTransaction struct {
	tx kv.Transaction
	prefixedReader
}

func (t prefixedTransaction) Snapshot() kv.Reader {
	return prefixedReader{t.tx.Snapshot(), t.keyPrefix}
}

func (t prefixedTransaction) Set(key, value []byte) { t.tx.Set(t.key(key), value) }

func (t prefixedTransaction) Clear(key []byte) { t.tx.Clear(t.key(key)) }

func (t prefixedTransaction) ClearRange(r kv.Range) { t.tx.ClearRange(t.span(r)) }

func (t prefixedTransaction) Add(key []byte, delta int64) { t.tx.Add(t.key(key), delta) }

func (t prefixedTransaction) CompareAndClear(key, value []byte) {
	t.tx.CompareAndClear(t.key(key), value)
}

func (t prefixedTransaction) AddReadConflict(r kv.Range) { t.tx.AddReadConflict(t.span(r)) }

func (t prefixedTransaction) AddWriteConflict(r kv.Range) { t.tx.AddWriteConflict(t.span(r)) }

func (t prefixedTransaction) Commit() kv.Future[struct{}] { return t.tx.Commit() }

func (t prefixedTransaction) Turn() int64 { return t.tx.Turn() }

func (t prefixedTransaction) Cancel() { t.tx.Cancel() }
