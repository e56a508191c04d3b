package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/migrate"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// What cannot be migrated is refused, and neither store is changed.
func TestMigrateRefusals(t *testing.T) {
	set := func(key tuple.Tuple, value []byte) func(f *fixture) {
		return func(f *fixture) { write(f, func(tx kv.Transaction) { tx.Set(key.Pack(), value) }) }
	}
	for name, test := range map[string]struct {
		embedded bool
		source   func(f *fixture)
		target   func(from, to *fixture)
		want     error
	}{
		"source without a store": {source: (*fixture).clearRecord, want: migrate.ErrNoStore},
		"source of a newer version": {source: func(f *fixture) {
			write(f, func(tx kv.Transaction) { tx.Set(f.recordKeys()[1], tuple.Tuple{int64(2)}.Pack()) })
		}, want: fdbpq.ErrStoreVersion},
		"source that is a target":         {source: func(f *fixture) { stopAtFirstStep(f.another(), f) }, want: fdbpq.ErrUnfinished},
		"foreign key before":              {embedded: true, source: set(tuple.Tuple{"a"}, nil), want: migrate.ErrForeignKeys},
		"foreign key between":             {embedded: true, source: set(tuple.Tuple{"pq-unknown"}, nil), want: migrate.ErrForeignKeys},
		"foreign key behind":              {embedded: true, source: set(tuple.Tuple{"z"}, nil), want: migrate.ErrForeignKeys},
		"target with items":               {target: func(_, to *fixture) { to.push(to.queue("jobs"), 0, "x") }, want: migrate.ErrNotEmpty},
		"target with a store":             {target: func(_, to *fixture) { must(to.open(to.Keyspace, fdbpq.StoreOptions{})) }, want: migrate.ErrNotEmpty},
		"embedded target with other keys": {embedded: true, target: func(_, to *fixture) { set(tuple.Tuple{"z"}, nil)(to) }, want: migrate.ErrNotEmpty},
		"target of another migration":     {target: func(from, to *fixture) { stopAtFirstStep(from.another(), to) }, want: migrate.ErrNotEmpty},
		"target of other settings": {target: func(from, to *fixture) {
			stopAtFirstStep(from, to)
			write(to, func(tx kv.Transaction) {
				for _, key := range to.recordKeys() {
					record := must(tuple.Unpack(must(tx.Get(key).Get())))
					record[4] = fdbpq.TupleValues.String()
					tx.Set(key, record.Pack())
				}
			})
		}, want: migrate.ErrNotEmpty},
		"target that is complete": {target: func(from, to *fixture) { must(runMigration(from, to)) }, want: migrate.ErrMigrated},
	} {
		t.Run(name, func(t *testing.T) {
			open := mem.open
			if test.embedded {
				open = pebble.open
			}
			from := newFixtureIn(t, open(t), "pq-r", "q-r", fdbpq.RawValues)
			must(from.open(from.Keyspace, fdbpq.StoreOptions{}))
			from.push(from.queue("jobs"), 0, "item")
			to := from.target(open(t))
			if test.source != nil {
				test.source(from)
			}
			if test.target != nil {
				test.target(from, to)
			}
			before := []string{fmt.Sprintf("%q", from.pairs()), fmt.Sprintf("%q", to.pairs())}
			wantError(t, errOf(runMigration(from, to)), test.want)
			wantList(t, "stores", []string{fmt.Sprintf("%q", from.pairs()), fmt.Sprintf("%q", to.pairs())}, before...)
			to.corrupt, from.corrupt = true, true // some are half full
		})
	}
}

// another returns an empty store with the same roots.
func (f *fixture) another() *fixture {
	other := f.target(mem.open(f.T))
	must(other.open(other.Keyspace, fdbpq.StoreOptions{}))
	return other
}

// clearRecord removes the record of the store.
func (f *fixture) clearRecord() {
	write(f, func(tx kv.Transaction) {
		for _, key := range f.recordKeys() {
			tx.Clear(key)
		}
	})
}

// stopAtFirstStep begins a migration to a store, whatever it has, and does not end it.
func stopAtFirstStep(from, to *fixture) {
	write(to, func(tx kv.Transaction) { tx.ClearRange(kv.Range{Begin: []byte{}, End: []byte{0xff}}) })
	ctx, cancel := context.WithCancel(from.ctx)
	_, err := migrate.Run(ctx, from.db, to.db, from.Keyspace, migrate.Options{Progress: func(migrate.Progress) { cancel() }})
	wantError(to.T, err, context.Canceled)
}

// Other settings than those of the source are refused.
func TestMigrateOtherSettings(t *testing.T) {
	f := opened(t, mem.open(t))
	for _, k := range []*fdbpq.Keyspace{
		must(fdbpq.NewKeyspace(f.priority, f.fifo, fdbpq.TupleValues)),
		must(fdbpq.NewKeyspace(f.priority, f.fifo+"x", fdbpq.RawValues)),
	} {
		_, err := migrate.Run(f.ctx, f.db, mem.open(t), k, migrate.Options{})
		if mismatch, ok := errors.AsType[*fdbpq.MismatchError](err); !ok {
			t.Errorf("%v, %v", err, mismatch)
		}
	}
}
