package pebblekv

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// twins are a store and its twin in memory, which do the same.
type twins struct {
	*testing.T
	rng     *rand.Rand
	files   vfs.FS
	db      *DB
	memory  *memkv.DB
	readers []twinReader
}

// twinReader is a reader of each. All readers but those of writers were begun at the same state.
type twinReader struct {
	stored, memory kv.Reader
	cancel         func()
}

// Whatever a transaction wrote before, however old it is, and wherever the store keeps what it
// reads, it reads the same as in memory: forwards and backwards, to every bound, and on from there.
func TestReadsAsInMemory(t *testing.T) {
	w := &twins{T: t, rng: seeded(t), files: vfs.NewMem(), memory: memkv.New(memkv.Options{})}
	w.open()
	for range harness.Times(300, 5_000) {
		w.write()
		w.read()
		w.move()
	}
	w.forget(0)
}

func (w *twins) open() { w.db = openTest(w.T, w.files, Options{}) }

// write runs a transaction that writes and reads by turns.
func (w *twins) write() {
	ctx := context.Background()
	stored, memory := begin(w, w.db), kv.Transaction(nil)
	memory, err := w.memory.Begin(ctx, kv.BeginOptions{})
	must(w, err)
	both := func(do func(tx kv.Transaction)) { do(stored); do(memory) }

	large := w.rng.IntN(10) == 0
	for range w.rng.IntN(12) {
		key, r, value := w.key(), w.span(), w.value(large)
		if large && len(key) == 0 { // Pebble cannot write a block of only the empty key
			key = []byte{0}
		}
		switch n := w.rng.IntN(12); n {
		case 0, 1, 2:
			both(func(tx kv.Transaction) { tx.Set(key, value) })
		case 3:
			keys := w.keys()
			both(func(tx kv.Transaction) {
				for _, key := range keys {
					tx.Set(key, value)
				}
			})
		case 4:
			both(func(tx kv.Transaction) { tx.Clear(key) })
		case 5:
			keys := w.keys()
			both(func(tx kv.Transaction) {
				for _, key := range keys {
					tx.Clear(key)
				}
			})
		case 6:
			both(func(tx kv.Transaction) { tx.ClearRange(r) })
		case 7:
			delta := w.rng.Int64N(3) - 1
			both(func(tx kv.Transaction) { tx.Add(key, delta) })
		case 8:
			both(func(tx kv.Transaction) { tx.CompareAndClear(key, value) })
		case 9:
			w.compare(twinReader{stored.Snapshot(), memory.Snapshot(), nil})
		default:
			w.compare(twinReader{stored, memory, nil})
		}
	}

	if w.rng.IntN(6) == 0 {
		both(kv.Transaction.Cancel)
		return
	}
	both(func(tx kv.Transaction) { mustCommit(w.T, tx) })
}

// read reads from one of the readers, begins another or ends some.
func (w *twins) read() {
	if len(w.readers) == 0 || w.rng.IntN(3) == 0 {
		stored := beginRead(w.T, w.db)
		memory, err := w.memory.BeginRead(context.Background())
		must(w, err)
		w.readers = append(w.readers,
			twinReader{stored, memory, func() { stored.Cancel(); memory.Cancel() }})
	}
	for range 3 {
		w.compare(w.readers[w.rng.IntN(len(w.readers))])
	}
	if w.rng.IntN(8) == 0 {
		w.forget(w.rng.IntN(len(w.readers)))
	}
}

// forget ends all readers but the first ones.
func (w *twins) forget(keep int) {
	for _, r := range w.readers[keep:] {
		r.cancel()
	}
	w.readers = w.readers[:keep]
}

// move has the store keep what it has elsewhere.
func (w *twins) move() {
	switch w.rng.IntN(60) {
	case 0, 1, 2, 3:
		must(w, w.db.store.pdb.Flush())
	case 4:
		must(w, w.db.store.pdb.Compact(context.Background(), nil, []byte("\xff\xff"), false))
	case 5:
		must(w, w.db.Backup(context.Background(), "copy"))
		backup, err := Open("copy", Options{FS: w.files, Logger: quiet,
			MemTableSize: minMemTableSize})
		must(w, err)
		stored := beginRead(w.T, backup)
		memory, err := w.memory.BeginRead(context.Background())
		must(w, err)
		for range 5 {
			w.compare(twinReader{stored, memory, nil})
		}
		stored.Cancel()
		mustClose(w.T, backup)
		must(w, w.files.RemoveAll("copy"))
	case 6:
		w.forget(0)
		mustClose(w.T, w.db)
		w.open()
	}
}

// compare reads one key and one range, and goes on with the range where a bound ended it.
func (w *twins) compare(r twinReader) {
	w.Helper()
	key := w.key()
	stored, err := r.stored.Get(key).Get()
	must(w, err)
	memory, err := r.memory.Get(key).Get()
	must(w, err)
	if (stored == nil) != (memory == nil) || string(stored) != string(memory) {
		w.Fatalf("%q is %.40q (nil: %t), not %.40q (nil: %t)",
			key, stored, stored == nil, memory, memory == nil)
	}

	span := w.span()
	o := kv.RangeOptions{Reverse: w.rng.IntN(2) == 0, Limit: max(0, w.rng.IntN(9)-3),
		Bytes: max(0, w.rng.IntN(40)-20)}
	for range 5 {
		stored, err := r.stored.GetRange(span, o).Get()
		must(w, err)
		memory, err := r.memory.GetRange(span, o).Get()
		must(w, err)
		same := func(a, b kv.KeyValue) bool {
			return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value)
		}
		if !slices.EqualFunc(stored, memory, same) {
			w.Fatalf("%q %+v\nhas    %s\nand not %s", span, o, show(stored), show(memory))
		}
		if !o.Full(memory) {
			return
		}
		if last := memory[len(memory)-1].Key; o.Reverse {
			span.End = last
		} else {
			span.Begin = kv.SingleKey(last).End
		}
	}
}

func show(pairs []kv.KeyValue) string {
	var b strings.Builder
	for _, pair := range pairs {
		fmt.Fprintf(&b, " %q=%.20q", pair.Key, pair.Value)
	}
	return b.String()
}

// key returns one of few keys: many are prefixes of others, some are empty. All are below \xff.
// With the race detector Pebble checks itself, and then does not work with empty ones: a block that
// begins with one panics, and range deletions from one on lose their effect now and then.
func (w *twins) key() []byte {
	size := w.rng.IntN(4)
	if harness.Race {
		size = max(1, size)
	}
	key := make([]byte, size)
	for i := range key {
		key[i] = "\x00ab\xff"[w.rng.IntN(4)]
	}
	if len(key) > 0 && key[0] == 0xff {
		key[0] = 0xfe
	}
	return key
}

// keys returns many keys in a row, so that a read can find gaps.
func (w *twins) keys() (keys [][]byte) {
	prefix := w.key()
	for n := range w.rng.IntN(150) {
		keys = append(keys, fmt.Appendf(prefix[:len(prefix):len(prefix)], "%03d", n))
	}
	return keys
}

// span returns a range, which is mostly not empty and may go to the end of all keys.
func (w *twins) span() kv.Range {
	r := kv.Range{Begin: w.key(), End: w.key()}
	if w.rng.IntN(4) == 0 {
		r.End = []byte("\xff")
	}
	if string(r.Begin) > string(r.End) && w.rng.IntN(8) > 0 {
		r.Begin, r.End = r.End, r.Begin
	}
	return r
}

// value returns a value, which sometimes fills blocks of its own.
func (w *twins) value(large bool) []byte {
	switch n := w.rng.IntN(8); {
	case large && n < 4:
		return make([]byte, w.rng.IntN(20_000))
	case n < 6:
		return binary.LittleEndian.AppendUint64(nil, uint64(w.rng.IntN(3)-1))
	default:
		return []byte("1234567890")[:w.rng.IntN(10)]
	}
}
