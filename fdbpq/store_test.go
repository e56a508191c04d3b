package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
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
	return [][]byte{
		tuple.Tuple{f.priority + "-store"}.Pack(), tuple.Tuple{f.fifo + "-store"}.Pack(),
	}
}

func otherFormat(format fdbpq.ValueFormat) fdbpq.ValueFormat { return fdbpq.TupleValues - format }

// Programs that open a store at the same time get the same ID, whatever becomes of their commits.
func TestStoreOpenedByMany(t *testing.T) {
	const seed = 20261120
	t.Logf("seed %d", seed)

	faults := faultkv.New(memkv.New(memkv.Options{}),
		faultkv.Options{Seed: seed, Rates: map[faultkv.Fault]float64{
			faultkv.Conflict:          0.1,
			faultkv.UnknownLost:       0.1,
			faultkv.UnknownMade:       0.1,
			faultkv.UnknownBeforeNext: 0.1,
			faultkv.UnknownDuringNext: 0.1,
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

// A store refuses other settings than it was made with, names each of them, and writes nothing.
func TestStoreRefusesOtherSettings(t *testing.T) {
	onEngines(t, func(f *fixture) {
		must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
		for name, c := range map[string]struct {
			k    *fdbpq.Keyspace
			want []fdbpq.Setting
		}{
			"another format": {
				must(fdbpq.NewKeyspace(f.priority, f.fifo, otherFormat(f.format))),
				[]fdbpq.Setting{fdbpq.SettingValueFormat},
			},
			"another FIFO root": {
				must(fdbpq.NewKeyspace(f.priority, f.fifo+"2", f.format)),
				[]fdbpq.Setting{fdbpq.SettingRoots},
			},
			"another priority root": {
				must(fdbpq.NewKeyspace(f.priority+"2", f.fifo, f.format)),
				[]fdbpq.Setting{fdbpq.SettingRoots},
			},
			"roots swapped": {
				must(fdbpq.NewKeyspace(f.fifo, f.priority, f.format)),
				[]fdbpq.Setting{fdbpq.SettingRoots},
			},
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

// A store may hold several Keyspaces and the keys of other programs. A Keyspace that asks for an
// exclusive store gets one without other Keyspaces only.
func TestStoreOfOneKeyspace(t *testing.T) {
	for _, engine := range []engine{mem, pebble} { // FoundationDB is never one's own
		t.Run(engine.name, func(t *testing.T) {
			f := newFixture(t, engine.open(t), fdbpq.RawValues)
			own := fdbpq.StoreOptions{Exclusive: true}
			other := must(fdbpq.NewKeyspace(f.priority+"2", f.fifo+"2", f.format))

			write(f, func(tx kv.Transaction) { // keys of other programs, before and behind
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
				t.Errorf("another exclusive Keyspace: %v, want an error that names %s",
					err, f.priority)
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

// storeVersion is the version in the record of a store.
const storeVersion int64 = 6

// A record that cannot be read is corrupt, and one of another version is refused as such.
func TestStoreRecordThatCannotBeRead(t *testing.T) {
	f := onMem(t)
	for _, record := range []struct {
		name  string
		value []byte
		want  error
	}{
		{"empty", nil, fdbpq.ErrCorrupt},
		{"no tuple", []byte("x"), fdbpq.ErrCorrupt},
		{"no id", tuple.Tuple{storeVersion, "", "a", "b", "raw"}.Pack(), fdbpq.ErrCorrupt},
		{"too short", tuple.Tuple{storeVersion, "id", "a"}.Pack(), fdbpq.ErrCorrupt},
		{
			"of the next version",
			tuple.Tuple{storeVersion + 1, "whatever", "comes", "next"}.Pack(),
			fdbpq.ErrStoreVersion,
		},
		{
			"of a much later version",
			tuple.Tuple{int64(99), int64(0), int64(0), "later"}.Pack(),
			fdbpq.ErrStoreVersion,
		},
	} {
		write(f, func(tx kv.Transaction) { tx.Set(f.recordKeys()[1], record.value) })

		_, err := f.open(f.Keyspace, fdbpq.StoreOptions{})

		if !errors.Is(err, record.want) {
			t.Errorf("a record %s: error %v, want %v", record.name, err, record.want)
		}
	}
}

// A store from before 0.1.0 is refused, and stays as it is. The error names the last commit that
// reads it.
func TestStoreFromBeforeTheRelease(t *testing.T) {
	names := regexp.MustCompile(`commit [0-9a-f]{8}, the last that reads it`)
	for version := range storeVersion {
		f := onMem(t)
		f.push(f.queue("jobs"), 1, "x")

		if version > 0 { // the oldest stores have no record
			record := tuple.Tuple{version, "id", f.priority, f.fifo, "raw"}.Pack()
			write(f, func(tx kv.Transaction) { tx.Set(f.recordKeys()[0], record) })
		}

		before := f.pairs()

		_, err := f.open(f.Keyspace, fdbpq.StoreOptions{})

		wantError(t, err, fdbpq.ErrStoreVersion)
		if err != nil && !names.MatchString(err.Error()) {
			t.Errorf("version %d: the error names no commit: %v", version, err)
		}
		if !reflect.DeepEqual(f.pairs(), before) {
			t.Errorf("version %d: the store has changed", version)
		}
	}
}

// A store can be opened after programs with the bare recipe have used its queues.
func TestStoreWithItemsOfTheRecipe(t *testing.T) {
	f := onMem(t)
	list := f.recipePuts(f.priority, false)

	s, err := f.open(f.Keyspace, fdbpq.StoreOptions{})

	if err != nil || !s.New {
		t.Errorf("opened %+v, %v: want a new store", s, err)
	}

	// The queue has their items.
	got, err := f.take(f.queue("jobs").PopMin)
	wantForeign(t, got, err, list[0])
}

// The store's record has the bytes that other programs and newer versions rely on, and stays when
// the store is opened again.
func TestStoreRecordBytes(t *testing.T) {
	f := onMem(t)
	s := must(f.open(f.Keyspace, fdbpq.StoreOptions{}))

	again := must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
	wantEqual(t, "new", fmt.Sprint(s.New, again.New), "true false")
	if again.ID != s.ID || len(s.ID) < 20 { // shorter ones might repeat
		t.Errorf("the ID is %q, and then %q", s.ID, again.ID)
	}

	for _, key := range f.recordKeys() {
		stored, err := kv.ReadTransact(f.ctx, f.db,
			func(r kv.Reader) ([]byte, error) { return r.Get(key).Get() })
		want := tuple.Tuple{storeVersion, s.ID, f.priority, f.fifo, "raw"}.Pack()
		if err != nil || string(stored) != string(want) {
			t.Errorf("%q: %q, %v: want %q", key, stored, err, want)
		}
	}
}

// An outage is an error of the store, the end of the context is another, and OpenStore can be
// called again after both.
func TestStoreAway(t *testing.T) {
	faults := faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{})
	f := newFixture(t, faults, fdbpq.RawValues)
	faults.SetOutage(true)

	wantError(t, errOf(f.open(f.Keyspace, fdbpq.StoreOptions{})), kv.ErrUnavailable)

	faults.SetOutage(false)
	ended, cancel := context.WithCancel(f.ctx)
	cancel()
	wantError(t, errOf(fdbpq.OpenStore(ended, f.db, f.Keyspace, fdbpq.StoreOptions{})),
		context.Canceled)
	must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
}
