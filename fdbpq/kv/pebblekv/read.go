package pebblekv

import (
	"cmp"
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// readTransaction implements kv.ReadTransaction.
type readTransaction struct {
	ctx   context.Context
	store *openedStore

	mu     sync.Mutex
	view   *view
	ended  error            // nil while it is open
	iter   *pebble.Iterator // nil before the first read
	copies arena
	finder gapFinder
}

func newReadTransaction(ctx context.Context, s *openedStore) (kv.ReadTransaction, error) {
	tx := &readTransaction{ctx: ctx, store: s}

	// The store may abort tx as soon as it is registered. It keeps its view until that is done.
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := s.register(tx, tx.abort); err != nil {
		return nil, err
	}

	tx.view = s.syncer.durableView()
	return tx, nil
}

func (tx *readTransaction) Get(key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return kv.Ready(tx.get(key))
}

func (tx *readTransaction) get(key []byte) ([]byte, error) {
	if err := tx.prepare(); err != nil {
		return nil, err
	}

	setBounds(tx.iter, kv.SingleKey(key))
	if !tx.iter.First() {
		return nil, tx.store.readError(tx.iter.Error())
	}

	value, err := tx.iter.ValueAndErr()
	if err != nil {
		return nil, tx.store.readError(err)
	}

	return tx.copies.clone(value), nil
}

func (tx *readTransaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return kv.Ready(tx.getRange(r, o))
}

func (tx *readTransaction) getRange(r kv.Range, o kv.RangeOptions) ([]kv.KeyValue, error) {
	if err := tx.prepare(); err != nil {
		return nil, err
	}

	s := scan{iter: tx.iter, index: tx.store.gapIndex, version: tx.view.version,
		finder: &tx.finder, copies: &tx.copies, whole: r, options: o}
	pairs, err := s.read()
	return pairs, tx.store.readError(err)
}

// prepare makes tx.iter ready for use.
func (tx *readTransaction) prepare() error {
	if err := cmp.Or(tx.ended, tx.ctx.Err()); err != nil {
		return err
	}
	if tx.iter != nil {
		return nil
	}

	o := pebble.CloneOptions{IterOptions: &pebble.IterOptions{SkipPoint: tx.finder.step}}
	iter, err := tx.view.iter.Clone(o)
	if err != nil {
		return tx.store.readError(err)
	}

	tx.iter = iter
	return nil
}

func (tx *readTransaction) Cancel() { tx.abort(kv.ErrUsed) }

func (tx *readTransaction) abort(reason error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended != nil {
		return
	}

	tx.ended = reason
	if tx.iter != nil {
		_ = tx.iter.Close() // Its errors were returned by the reads.
	}

	tx.store.gapIndex.publishRead(tx.view.version, tx.finder.found)
	tx.view.unref()
	tx.store.unregister(tx)
}
