package fdbpq_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pattern returns n random bytes, some of them zero, different for each seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b) // never fails
	return b
}

// wantMessage checks that an item holds m. No headers and empty headers are the same.
func wantMessage(t *testing.T, what string, got fdbpq.Item, err error, m fdbpq.Message) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("%s: %v", what, err)
	case !bytes.Equal(got.Value, m.Value):
		t.Errorf("%s: value of %d bytes differs, want %d bytes", what, len(got.Value), len(m.Value))
	case len(got.Headers)+len(m.Headers) > 0 && !reflect.DeepEqual(got.Headers, m.Headers):
		t.Errorf("%s: headers are %q, want %q", what, got.Headers, m.Headers)
	}
}

// Values of every size around multiples of a chunk come back byte for byte, and leave nothing
// behind.
func TestValueSizes(t *testing.T) {
	headers := map[string][]string{"Trace": {"a", "b"}}
	onStores(t, func(f *fixture) {
		q, fifo := f.queue("sizes"), f.fifoQueue("sizes")
		chunk := codec.ChunkOf(f.format)

		for i, size := range []int{
			0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2*chunk + 1, 3*chunk + 1,
		} {
			for _, m := range []fdbpq.Message{
				{Value: pattern(size, i)},
				{Value: make([]byte, max(0, size-100)), Headers: headers},
			} {
				what := fmt.Sprintf("size %d, %d headers", len(m.Value), len(m.Headers))
				if _, err := do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
					return q.Push(tx, int64(i), m)
				}); err != nil {
					f.Fatalf("%s: %v", what, err)
				}

				if _, err := do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
					return fifo.Enqueue(tx, m)
				}); err != nil {
					f.Fatalf("%s: %v", what, err)
				}
				f.check()

				item, err := f.look(q.PeekMax)
				wantMessage(f.T, what+": PeekMax", item, err, m)

				item, err = f.take(q.PopMin)
				wantMessage(f.T, what+": PopMin", item, err, m)

				item, err = f.look(fifo.Peek)
				wantMessage(f.T, what+": Peek", item, err, m)

				item, err = f.take(fifo.Dequeue)
				wantMessage(f.T, what+": Dequeue", item, err, m)
			}
		}

		if left := len(f.stored(f.priority)) + len(f.stored(f.fifo)); left > 0 {
			f.Errorf("%d keys are left", left)
		}
	})
}

// Headers of all kinds and lengths come back unchanged, with values of any size.
func TestHeaders(t *testing.T) {
	long := strings.Repeat("h", 200_000)
	onEngines(t, func(f *fixture) {
		q := f.queue("headers")
		for i, headers := range []map[string][]string{
			nil,
			{},
			{"One": {"1"}},
			{"Many": {"b", "a", "", "a"}, "Other": {"x"}},
			{"": {""}},
			{"Bytes\xff\x00\xfe": {"\x00\xff", "\xff\xff\x00"}},
			{"Long": {long, long}, long: {"v"}},
			{"NoValues": {}},
		} {
			for _, value := range []string{"", "v", strings.Repeat("\x00\x01", 50_000)} {
				m := fdbpq.Message{Value: []byte(value), Headers: headers}
				must(do(f, func(tx kv.Transaction) (fdbpq.ID, error) { return q.Push(tx, 1, m) }))
				item, err := f.look(q.PeekMin)
				wantMessage(f.T, fmt.Sprintf("headers %d: PeekMin", i), item, err, m)

				item, err = f.take(q.PopMax)
				wantMessage(f.T, fmt.Sprintf("headers %d: PopMax", i), item, err, m)
			}
		}
	})
}

// tooLarge are messages over the limit, each for another reason.
func tooLarge() map[string]fdbpq.Message {
	half := strings.Repeat("x", fdbpq.MaxMessageSize/2)
	return map[string]fdbpq.Message{
		"value":               {Value: make([]byte, fdbpq.MaxMessageSize+1)},
		"value and header":    {Value: []byte(half), Headers: map[string][]string{"H": {half}}},
		"headers":             {Headers: map[string][]string{"A": {half}, "B": {half}}},
		"name without values": {Headers: map[string][]string{half + half + "x": nil}},
		"zeros in a header": {
			Headers: map[string][]string{"H": {strings.Repeat("\x00", 8_000_000)}},
		},
		"zeros in a name": {Headers: map[string][]string{strings.Repeat("\x00", 8_000_000): {""}}},
		"empty values":    {Headers: map[string][]string{"H": make([]string, 6_000_000)}},
	}
}

// A message that is too large fails alone, and nothing of it is written.
func TestTooLarge(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("large")
		for name, m := range tooLarge() {
			_, err := do(f, func(tx kv.Transaction) (fdbpq.ID, error) { return q.Push(tx, 1, m) })
			wantError(f.T, err, fdbpq.ErrMessageTooLarge)

			if left := len(f.stored(f.priority)) + len(f.stored(f.priority+"-queues")); left > 0 {
				f.Errorf("%s: a refused push wrote %d keys", name, left)
			}

			ops := []fdbpq.Op{
				opPush(q, 1, "a"),
				{Kind: fdbpq.OpPush, Queue: q, Message: m},
				op(opPopMin, q),
			}

			results, err := f.batcher.Apply(f.ctx, ops)
			if err != nil {
				f.Errorf("%s: the batch failed: %v", name, err)
				continue
			}
			wantError(f.T, results[1].Err, fdbpq.ErrMessageTooLarge)

			if results[0].Err != nil || string(results[2].Item.Value) != "a" {
				f.Errorf("%s: the others in the batch gave %+v", name, results)
			}

			write(f, func(tx kv.Transaction) {
				for _, root := range []string{f.priority, f.priority + "-queues"} {
					tx.ClearRange(everything(root))
				}
			})
		}
	})
}

// A caller that changes its bytes after a push does not change the item, and an append to one item
// does not reach another.
func TestBytesAreTheCallers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("bytes")
		value := []byte("before")
		tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
		defer tx.Cancel()
		must(q.Push(tx, 1, fdbpq.Message{Value: value}))

		copy(value, "AFTER!")
		must(tx.Commit().Get())
		f.apply(opPush(q, 2, "second"), opPush(q, 3, "third"))
		ops := []fdbpq.Op{op(opPopMin, q), op(opPopMin, q), op(opPopMin, q)}
		results := f.apply(ops...)

		for i := range results {
			_ = append(results[i].Item.Value, "overwritten by the caller, who owns it"...)
		}
		wantList(f.T, "values", summary(ops, results), "before", "second", "third")
	})
}
