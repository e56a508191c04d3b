// Package migrate copies a Keyspace from one store to another, on any engines, and compares the
// two.
package migrate

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Errors of Run. It also returns fdbpq.ErrUnfinished.
var (
	// ErrNoStore: there is no store to migrate.
	ErrNoStore = errors.New("fdbpq: no store was opened here")

	// ErrNotEmpty: the target of a migration has keys that no migration from this source wrote.
	ErrNotEmpty = errors.New("fdbpq: the target of a migration has to be empty")

	// ErrMigrated: the target is a complete copy of the source already.
	ErrMigrated = errors.New("fdbpq: the source was migrated to this target before")

	// ErrForeignKeys: the source has keys that do not belong to the Keyspace.
	ErrForeignKeys = errors.New("fdbpq: the store has keys that belong to no queue")

	// ErrDiffers: in the end, the copy is not the same as its source.
	ErrDiffers = errors.New("fdbpq: the copy differs from its source")
)

// Progress is how far a migration is.
type Progress struct {
	// Checking says that everything is copied, and both stores are being compared.
	Checking bool
	// Keys and Bytes are how much was copied, also by earlier calls; while Checking, how much of
	// the target was read.
	Keys, Bytes int64
}

// Result is the result of a migration.
type Result struct {
	// ID is the identity of the new store. It differs from the source's.
	ID string
	// Resumed says that an earlier call had begun the copy.
	Resumed bool
	// Digest sums up either store.
	Digest Digest
}

// Run copies a Keyspace key by key from one store to another, on any engines. It does not change
// the source, which nobody may use meanwhile. The target must be empty. Items that are pushed to it
// later come after copied items of equal priority: the order of items is in their keys, and no
// engine counts by itself.
//
// Until the migration has ended, OpenStore refuses the target. If Run fails, or the process ends,
// another call continues where the first stopped. In the end Run reads both stores again and
// compares them. If a bridge or a Batcher has used the source meanwhile, it notices and returns
// ErrDiffers; the next call then empties the target and starts over. It may miss changes by other
// programs.
//
// Run calls progress after each step, in one goroutine at a time.
//
// Errors: ErrNoStore, ErrUnfinished of the source, ErrForeignKeys, ErrNotEmpty, ErrMigrated,
// ErrDiffers, *MismatchError, ErrStoreVersion, ErrCorrupt, whatever the stores return, and the
// context's error.
func Run(
	ctx context.Context, from, to kv.Database, k *fdbpq.Keyspace, progress func(Progress),
) (Result, error) {
	m := &migration{ctx: ctx, from: from, to: to, keyspace: k, k: k.Space(), progress: progress}
	m.areas, m.newID = m.k.DataAreas(), rand.Text()
	if err := m.checkSource(); err != nil {
		return Result{}, err
	}

	if err := kv.UpdateIdempotent(ctx, to, m.startOrResume); err != nil {
		return Result{}, storeError("target", err)
	}

	if err := m.copyAreas(); err != nil {
		return Result{}, err
	}

	digest, err := m.compare()
	if err != nil {
		return Result{}, err
	}

	// From now on OpenStore accepts the target.
	err = m.update(func(tx kv.Transaction) []byte {
		record := m.k.Record(m.at.id)
		record.Origin = m.source
		return record.Encode()
	})
	return Result{ID: m.at.id, Resumed: m.resumed, Digest: digest}, err
}

type migration struct {
	ctx      context.Context
	from, to kv.Database
	keyspace *fdbpq.Keyspace
	k        *codec.Space // its keys
	progress func(Progress)
	areas    []kv.Range // what is copied, in this order
	source   string     // identity of the source
	newID    string     // identity of the target if this call begins the copy
	resumed  bool
	at       copyRecord
}

// checkSource returns an error if the source is not a store of the Keyspace.
func (m *migration) checkSource() error {
	exclusive := !m.from.Traits().Shared
	store, err := kv.ReadTransact(m.ctx, m.from, func(r kv.Reader) (fdbpq.Store, error) {
		store, err := m.keyspace.ReadStore(r, fdbpq.StoreOptions{Exclusive: exclusive})
		if err == nil && store.ID == "" {
			err = ErrNoStore
		}

		if err == nil && exclusive {
			err = m.checkForeign(r)
		}
		return store, err
	})
	m.source = store.ID
	return storeError("source", err)
}

// checkForeign returns an error if a store that belongs to the Keyspace alone has other keys, which
// would not be copied.
func (m *migration) checkForeign(r kv.Reader) error {
	owned := m.k.DataAreas()
	for _, key := range m.recordKeys() {
		owned = append(owned, kv.SingleKey(key))
	}

	slices.SortFunc(owned, func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) })

	next := []byte{}
	for _, keys := range append(owned, kv.Range{Begin: lastKey}) {
		if err := wantNoKey(r, kv.Range{Begin: next, End: keys.Begin}, ErrForeignKeys); err != nil {
			return err
		}
		next = keys.End
	}

	return nil
}

// lastKey comes after all keys that programs can write, in every store.
var lastKey = []byte{0xff}

// wantNoKey returns an error that wraps problem if a range has a key.
func wantNoKey(r kv.Reader, keys kv.Range, problem error) error {
	pairs, err := r.GetRange(keys, kv.RangeOptions{Limit: 1}).Get()
	if err == nil && len(pairs) > 0 {
		err = fmt.Errorf("%w: there is the key %q", problem, pairs[0].Key)
	}
	return err
}

// startOrResume writes the first record, or reads the one of an earlier call.
func (m *migration) startOrResume(tx kv.Transaction) error {
	for _, key := range m.recordKeys() {
		value, err := tx.Get(key).Get()
		if err != nil {
			return err
		}

		if value != nil {
			return m.resume(tx, value)
		}
	}

	empty := m.areas
	if !m.to.Traits().Shared {
		empty = []kv.Range{{Begin: []byte{}, End: lastKey}}
	}

	for _, area := range empty {
		if err := wantNoKey(tx, area, ErrNotEmpty); err != nil {
			return err
		}
	}

	m.beginCopy(tx, m.newID)
	return nil
}

// beginCopy starts the copy at the beginning.
func (m *migration) beginCopy(tx kv.Transaction, id string) {
	m.at = copyRecord{id: id, source: m.source, next: []byte{}}
	m.setRecord(tx, m.at.encode(m.k))
}

func (m *migration) setRecord(tx kv.Transaction, record []byte) {
	for _, key := range m.recordKeys() {
		tx.Set(key, record)
	}
}

// recordKeys returns where the record of a store is.
func (m *migration) recordKeys() [2][]byte {
	return [...][]byte{m.k.StoreKey(m.k.Priority.Root), m.k.StoreKey(m.k.Fifo.Root)}
}

// resume continues where the record of the target says.
func (m *migration) resume(tx kv.Transaction, value []byte) error {
	record, err := codec.ParseStoreRecord(value)
	switch {
	case err == nil && record.Origin == m.source:
		return fmt.Errorf("%w: its identity is %s", ErrMigrated, record.ID)
	case err == nil:
		return fmt.Errorf("%w: it has a store, with the identity %s", ErrNotEmpty, record.ID)
	case !errors.Is(err, codec.ErrUnfinished):
		return err
	}

	at, err := parseCopyRecord(value)
	switch {
	case err != nil:
		return err
	case at.source != m.source:
		return fmt.Errorf("%w: it has an unfinished copy of the store %s, "+
			"and this source is the store %s", ErrNotEmpty, at.source, m.source)
	case !bytes.Equal(at.encode(m.k), value):
		return fmt.Errorf("%w: it has an unfinished copy that was begun with other settings",
			ErrNotEmpty)
	}

	m.at, m.resumed = at, at.id != m.newID
	if at.area == restart {
		for _, area := range m.areas {
			tx.ClearRange(area)
		}
		m.beginCopy(tx, at.id)
	}

	return nil
}

// copyAreas copies the rest of all areas.
func (m *migration) copyAreas() error {
	for m.at.area < int64(len(m.areas)) {
		area := m.areas[m.at.area]
		if len(m.at.next) > 0 {
			area.Begin = m.at.next
		}

		err := scan(m.ctx, m.from, area, m.write)
		if err != nil {
			return err
		}
	}

	return nil
}

// write copies a page and records how far the copy is, in one transaction.
func (m *migration) write(page []kv.KeyValue) error {
	next := m.at
	next.keys += int64(len(page))
	for _, pair := range page {
		next.bytes += int64(len(pair.Key) + len(pair.Value))
	}

	if copyPage.Full(page) {
		next.next = kv.SingleKey(page[len(page)-1].Key).End
	} else {
		next.area, next.next = next.area+1, []byte{}
	}

	err := m.update(func(tx kv.Transaction) []byte {
		for _, pair := range page {
			tx.Set(pair.Key, pair.Value)
		}
		return next.encode(m.k)
	})
	if err != nil {
		return err
	}

	m.at = next
	m.progress(Progress{Keys: next.keys, Bytes: next.bytes})
	return nil
}

// update runs fn in a transaction of the target, and replaces the record by what fn returns. That
// happens once, even if the outcome of an attempt is unknown.
func (m *migration) update(fn func(tx kv.Transaction) []byte) error {
	before := m.at.encode(m.k)

	err := kv.UpdateIdempotent(m.ctx, m.to, func(tx kv.Transaction) error {
		found, err := tx.Get(m.recordKeys()[0]).Get()
		if err != nil {
			return err
		}

		record := fn(tx)
		if bytes.Equal(found, record) {
			return nil // an earlier attempt has committed; this one writes the same
		}

		if !bytes.Equal(found, before) {
			return errors.New("fdbpq: another process migrates to the same target")
		}

		m.setRecord(tx, record)
		return nil
	})
	return storeError("target", err)
}

// storeError says which store an error is about.
func storeError(store string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", store, err)
}

// compare reads both stores, and returns ErrDiffers unless they are the same.
func (m *migration) compare() (source Digest, err error) {
	var target Digest
	both, ctx := errgroup.WithContext(m.ctx)
	both.Go(func() (err error) {
		target, err = m.digest(ctx, m.to, func(d Digest) {
			m.progress(Progress{Checking: true, Keys: d.Keys, Bytes: d.Bytes})
		})
		return storeError("target", err)
	})
	both.Go(func() (err error) {
		source, err = m.digest(ctx, m.from, func(Digest) {})
		return storeError("source", err)
	})
	if err := both.Wait(); err != nil || target == source {
		return source, err
	}

	// The next call starts over.
	err = m.update(func(kv.Transaction) []byte {
		again := m.at
		again.area = restart
		return again.encode(m.k)
	})
	differs := fmt.Errorf("%w: the copy has %v, the source %v", ErrDiffers, target, source)
	return Digest{}, errors.Join(differs, err)
}
