package state

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// In whatever order the parts of an item arrive, are dropped and are read again, an item that is
// not cut has all of its value and headers.
func TestStoredInAnyOrder(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again: go test ./fdbpq/internal/state -run '^%s$' -seed %d", t.Name(), seed)

	for run := range harness.Times(300, 5000) {
		r := newStoredRun(t, rand.New(rand.NewPCG(seed, uint64(run))))
		for range r.random.IntN(12) {
			r.step()
		}
		r.finish()
	}
}

// storedRun reads one item.
type storedRun struct {
	*testing.T
	random *rand.Rand
	l      *codec.Layout
	read   kv.Reader

	want  codec.Message
	value []byte // of the item's own key, as stored
	s     ItemRead
	owned bool // SetOwn was called
	steps []string
}

func newStoredRun(t *testing.T, random *rand.Rand) *storedRun {
	r := &storedRun{T: t, random: random}
	format := []codec.ValueFormat{codec.RawValues, codec.TupleValues}[random.IntN(2)]
	r.l = codec.NewLayout(tuple.NewSubspace(tuple.Tuple{"q"}), format, false)

	sizes := []int{0, 10, codec.ChunkSize, 2 * codec.ChunkSize, 5 * codec.ChunkSize}
	r.want.Value = make([]byte, sizes[random.IntN(len(sizes))]+random.IntN(100))
	for i := range r.want.Value {
		r.want.Value[i] = byte(random.Uint32())
	}
	if random.IntN(2) == 0 {
		size := []int{1, codec.ChunkSize, 2 * codec.ChunkSize}[random.IntN(3)]
		r.want.Headers = map[string][]string{"A": {strings.Repeat("a", size)}}
	}

	tx, err := memkv.New(memkv.Options{}).Begin(t.Context(), kv.BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.read = tx
	g := NewLedger(tx, r.l, time.Now(), nil)
	unique := codec.UniqueBytes(1)
	id := codec.NewID(1, 2, time.Now(), unique, r.l.Flags(&r.want))
	r.value = g.AddRest(&id, &r.want)
	tx.Set(r.l.ItemKey(&id), r.value)

	if r.owned = random.IntN(2) == 0; r.owned {
		r.s = ParseOwn(r.l, kv.KeyValue{Key: r.l.ItemKey(&id), Value: r.value})
		r.s.BeginRead(r.read, r.l, r.bytes())
	} else {
		r.s = BeginItem(r.l, r.read, &id, r.bytes())
	}
	return r
}

// bytes is how many bytes of ("m") keys a step reads.
func (r *storedRun) bytes() int {
	return []int{0, 1, Beginning, 3 * codec.ChunkSize}[r.random.IntN(4)]
}

// step reads on, or drops what was read.
func (r *storedRun) step() {
	steps := []struct {
		name string
		do   func() error
	}{
		{"BeginRead", func() error { r.s.BeginRead(r.read, r.l, r.bytes()); return nil }},
		{"SetOwn", func() error { r.own(); return nil }},
		{"Drop", func() error { r.s.Drop(); return nil }},
		{"FinishRead", r.s.FinishRead},
		{"ReadHeaders", func() error { return r.s.ReadHeaders(r.read, r.l) }},
		{"ReadMeta", func() error { return r.s.ReadMeta(r.read, r.l, r.bytes()) }},
		{"Lasting", func() error { _, err := r.s.Lasting(); return err }},
		{"Load", func() error {
			r.owned = true
			return r.s.Load(r.read, r.l, r.value, r.random.IntN(2) == 0)
		}},
	}
	step := steps[r.random.IntN(len(steps))]
	r.steps = append(r.steps, step.name)
	if err := step.do(); err != nil {
		r.Fatal(err)
	}
	if r.owned && !r.s.Cut && (r.s.parts != nil || !codec.HasMeta(&r.s.Item.ID)) {
		r.check()
	}
}

// own sets the item's own key.
func (r *storedRun) own() {
	r.owned = true
	r.s.SetOwn(r.l, r.value)
}

// finish reads all of the item.
func (r *storedRun) finish() {
	if !r.owned {
		r.own()
	}
	if err := r.s.ReadMeta(r.read, r.l, NoBound); err != nil {
		r.Fatal(err)
	}
	r.check()
}

// check compares an item that is not cut with what was pushed.
func (r *storedRun) check() {
	r.Helper()
	got := r.s.Item.Message
	same := bytes.Equal(got.Value, r.want.Value) && reflect.DeepEqual(got.Headers, r.want.Headers)
	if r.s.Err != nil || r.s.Cut || !same {
		r.Fatalf("after %v: %d bytes, %d headers, cut %v, %v; want %d bytes and %d headers",
			r.steps, len(got.Value), len(got.Headers), r.s.Cut, r.s.Err,
			len(r.want.Value), len(r.want.Headers))
	}
}
