package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// open opens a Keyspace of the fixture's store.
func (f *fixture) open(k *fdbpq.Keyspace, o fdbpq.StoreOptions) (fdbpq.Store, error) {
	return fdbpq.OpenStore(f.ctx, f.db, k, o)
}

// recordKeys returns the keys of the Keyspace's record.
func (f *fixture) recordKeys() [][]byte {
	return [][]byte{tuple.Tuple{f.priority + "-store"}.Pack(), tuple.Tuple{f.fifo + "-store"}.Pack()}
}

func otherFormat(format fdbpq.ValueFormat) fdbpq.ValueFormat { return fdbpq.TupleValues - format }

// Programs that open a store at the same time get the same ID, whatever happens to their
// commits.
func TestStoreOpenedByMany(t *testing.T) {
	const seed = 20261120
	t.Logf("seed %d", seed)
	faults := faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{Seed: seed, Rates: map[faultkv.Fault]float64{
		faultkv.Conflict: 0.1, faultkv.UnknownLost: 0.1, faultkv.UnknownMade: 0.1, faultkv.UnknownBeforeNext: 0.1, faultkv.UnknownDuringNext: 0.1,
	}})
	f := newFixture(t, faults, fdbpq.RawValues)
	var mu sync.Mutex
	var ids []string
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			s, err := f.open(f.Keyspace, fdbpq.StoreOptions{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, s.ID)
		})
	}
	all.Wait()
	faults.Land()
	if s, err := f.open(f.Keyspace, fdbpq.StoreOptions{}); err != nil || s.ID != ids[0] {
		t.Errorf("%+v, %v: want %s", s, err, ids[0])
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("identities %q", ids)
	}
}

func TestStoreRefusesOtherSettings(t *testing.T) {
	onEngines(t, func(f *fixture) {
		must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
		for name, c := range map[string]struct {
			k    *fdbpq.Keyspace
			want []fdbpq.Setting
		}{
			"another format":        {must(fdbpq.NewKeyspace(f.priority, f.fifo, otherFormat(f.format))), []fdbpq.Setting{fdbpq.SettingValueFormat}},
			"another FIFO root":     {must(fdbpq.NewKeyspace(f.priority, f.fifo+"2", f.format)), []fdbpq.Setting{fdbpq.SettingRoots}},
			"another priority root": {must(fdbpq.NewKeyspace(f.priority+"2", f.fifo, f.format)), []fdbpq.Setting{fdbpq.SettingRoots}},
			"roots swapped":         {must(fdbpq.NewKeyspace(f.fifo, f.priority, f.format)), []fdbpq.Setting{fdbpq.SettingRoots}},
			"all of it": {must(fdbpq.NewKeyspace(f.fifo, f.priority, otherFormat(f.format))),
				[]fdbpq.Setting{fdbpq.SettingRoots, fdbpq.SettingValueFormat}},
		} {
			_, err := f.open(c.k, fdbpq.StoreOptions{})
			var settings []fdbpq.Setting
			if mismatch, ok := errors.AsType[*fdbpq.MismatchError](err); ok {
				for _, m := range mismatch.Mismatches {
					settings = append(settings, m.Setting)
				}
			}
			wantEqual(f.T, name, settings, c.want)
		}
		if n := len(f.stored(f.priority + "2-store")); n > 0 {
			f.Errorf("a refused keyspace has %d records", n)
		}
	})
}

// A store may hold several Keyspaces, unless one asks for it to be exclusive.
func TestStoreOfOneKeyspace(t *testing.T) {
	for _, engine := range []engine{mem, pebble} { // FoundationDB is never one's own
		t.Run(engine.name, func(t *testing.T) {
			f := newFixture(t, engine.open(t), fdbpq.RawValues)
			own := fdbpq.StoreOptions{Exclusive: true}
			other := must(fdbpq.NewKeyspace(f.priority+"2", f.fifo+"2", f.format))
			write(f, func(tx kv.Transaction) { // of other programs
				tx.Set(tuple.Tuple{int64(5)}.Pack(), nil)
				tx.Set([]byte{0x02, 'x'}, nil)
				tx.Set(tuple.Tuple{"zz", "y"}.Pack(), nil)
			})
			if s, err := f.open(f.Keyspace, own); err != nil || !s.New {
				t.Errorf("%+v, %v", s, err)
			}
			_, err := f.open(other, own)
			var mismatch *fdbpq.MismatchError
			if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), `"`+f.priority+`"`) {
				t.Error(err)
			}
			if s, err := f.open(other, fdbpq.StoreOptions{}); err != nil || !s.New {
				t.Errorf("a store of several: %+v, %v", s, err)
			}
			if s, err := f.open(f.Keyspace, own); err != nil || s.New {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func TestStoreRecordThatCannotBeRead(t *testing.T) {
	f := onMem(t)
	for value, want := range map[string]error{
		"":  fdbpq.ErrCorrupt,
		"x": fdbpq.ErrCorrupt,
		string(tuple.Tuple{int64(1), "", "a", "b", "raw"}.Pack()):          fdbpq.ErrCorrupt,
		string(tuple.Tuple{int64(1), "id", "a"}.Pack()):                    fdbpq.ErrCorrupt,
		string(tuple.Tuple{int64(2), "whatever", "comes", "next"}.Pack()):  fdbpq.ErrStoreVersion,
		string(tuple.Tuple{int64(99), int64(0), int64(0), "later"}.Pack()): fdbpq.ErrStoreVersion,
	} {
		write(f, func(tx kv.Transaction) { tx.Set(f.recordKeys()[1], []byte(value)) })
		wantError(t, errOf(f.open(f.Keyspace, fdbpq.StoreOptions{})), want)
	}
}

// A store keeps its identity. Programs in other languages, and older and newer versions, rely on the bytes
// of the record.
func TestStoreRecordBytes(t *testing.T) {
	f := onMem(t)
	s := must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
	again := must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
	wantEqual(t, "new", fmt.Sprint(s.New, again.New), "true false")
	if again.ID != s.ID || len(s.ID) < 20 {
		t.Errorf("%q, then %q", s.ID, again.ID)
	}
	for _, key := range f.recordKeys() {
		stored, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]byte, error) { return r.Get(key).Get() })
		want := tuple.Tuple{int64(1), s.ID, f.priority, f.fifo, "raw"}.Pack()
		if err != nil || string(stored) != string(want) {
			t.Errorf("%q: %q, %v: want %q", key, stored, err, want)
		}
	}
}

// An outage is an error of the store, and OpenStore can be called again.
func TestStoreAway(t *testing.T) {
	faults := faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{})
	f := newFixture(t, faults, fdbpq.RawValues)
	faults.SetOutage(true)
	wantError(t, errOf(f.open(f.Keyspace, fdbpq.StoreOptions{})), kv.ErrUnavailable)
	faults.SetOutage(false)
	ended, cancel := context.WithCancel(f.ctx)
	cancel()
	wantError(t, errOf(fdbpq.OpenStore(ended, f.db, f.Keyspace, fdbpq.StoreOptions{})), context.Canceled)
	must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
}
