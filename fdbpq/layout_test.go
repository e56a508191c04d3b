package fdbpq_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// recipeItem is an item of testdata/recipes.json: keys and values as the
// recipes make them with FoundationDB's Python and Java bindings.
type recipeItem struct {
	Priority, Count, Index int64
	Random, Value, Key     hexBytes
	StoredPython           hexBytes `json:"stored_python"`
	StoredJava             hexBytes `json:"stored_java"`
}

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// readRecipes returns the items in the order of their keys, moved from the file's subspace to
// the subspace root.
func readRecipes(t *testing.T, fifo bool, root tuple.Subspace) []recipeItem {
	t.Helper()
	type recipe struct {
		Subspace []string
		Items    []recipeItem
	}

	var file struct {
		PriorityQueue recipe `json:"priority_queue"`
		Queue         recipe
	}

	text, err := os.ReadFile("testdata/recipes.json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}

	r := file.PriorityQueue
	if fifo {
		r = file.Queue
	}

	var space tuple.Tuple
	for _, element := range r.Subspace {
		space = append(space, element)
	}

	for i := range r.Items {
		rest, ok := bytes.CutPrefix(r.Items[i].Key, space.Pack())
		if !ok {
			t.Fatalf("key %x is outside of its subspace", r.Items[i].Key)
		}

		r.Items[i].Key = append(slices.Clone(root.Bytes()), rest...)
	}

	slices.SortFunc(r.Items, func(a, b recipeItem) int { return bytes.Compare(a.Key, b.Key) })
	return r.Items
}

func (f *fixture) storedForm(i recipeItem) []byte {
	if f.format == fdbpq.TupleValues {
		return i.StoredJava
	}
	return i.StoredPython
}

// items returns the subspace of a queue's items.
func items(root, name string) tuple.Subspace {
	return tuple.NewSubspace(tuple.Tuple{root, name, "i"})
}

// recipePuts writes the items as the recipes would.
func (f *fixture) recipePuts(root string, fifo bool) []recipeItem {
	f.Helper()
	list := readRecipes(f.T, fifo, items(root, "jobs"))

	write(f, func(tx kv.Transaction) {
		for _, i := range list {
			tx.Set(i.Key, f.storedForm(i))
		}
	})

	return list
}

// wantForeign checks an item that the recipe wrote.
func wantForeign(t *testing.T, got fdbpq.Item, err error, want recipeItem) {
	t.Helper()
	if err != nil {
		t.Fatalf("item of the recipe: %v", err)
	}
	id := fdbpq.ID{Priority: want.Priority, Count: want.Count + want.Index}
	copy(id.Random[:], want.Random)

	if got.ID != id || !bytes.Equal(got.Value, want.Value) || got.Headers != nil ||
		!got.PushedAt.Equal(time.Time{}) {
		t.Errorf("item is %+v, want id %+v, value %x, no headers, no time", got, id, want.Value)
	}
}

// Items of the recipe are found, peeked at and popped in their order, and never counted.
func TestRecipeItemsArePopped(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		for n, of := range []struct {
			root string
			q    fdbpq.Target
			peek func(kv.Reader) (fdbpq.Item, error)
			pop  func(kv.Transaction) (fdbpq.Item, error)
		}{
			{f.priority, q, q.PeekMin, q.PopMin},
			{f.priority, q, q.PeekMax, q.PopMax},
			{f.fifo, fifo, fifo.Peek, fifo.Dequeue},
		} {
			list := f.recipePuts(of.root, of.root == f.fifo)
			if n == 1 {
				slices.Reverse(list)
			}

			if n != 1 {
				f.walkForeign(of.q, list)
			}

			for _, want := range list {
				got, err := f.look(of.peek)
				wantForeign(f.T, got, err, want)

				got, err = f.take(of.pop)
				wantForeign(f.T, got, err, want)

				if n := f.length(q); n != 0 {
					f.Errorf("items of the recipe are counted: Len is %d", n)
				}
			}
			wantError(f.T, errOf(f.take(of.pop)), fdbpq.ErrEmpty)

			if left := f.stored(of.root); len(left) > 0 {
				f.Errorf("%d keys are left, the first %x", len(left), left[0].Key)
			}
		}
	})
}

// walkForeign looks for items of the recipe in their order, and by their ids.
func (f *fixture) walkForeign(q fdbpq.Target, list []recipeItem) {
	f.Helper()
	items, end := f.walk(fdbpq.Browse{State: fdbpq.Ready}, q, time.Now())
	wantEqual(f.T, "items, scanned, more", fmt.Sprint(len(items), end.Scanned, end.More),
		fmt.Sprint(len(list), len(list), false))

	n := 0
	wantError(f.T, fdbpq.ReadItems(f.ctx, f.db, q, idsOf(items), time.Now(),
		func(i int, item *fdbpq.Browsed) bool {
			wantForeign(f.T, items[i].Item, items[i].Err, list[i])
			wantForeign(f.T, item.Item, item.Err, list[i])
			n++
			return true
		}), nil)
	wantEqual(f.T, "items by their ids", n, len(list))
}

// An item that we push is what the recipe would have written: the next count at its
// priority, 20 bytes, the value in the same format.
func TestPushedItemsAreRecipeItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.recipePuts(f.priority, false)
		before := f.stored(f.priority)
		q := f.queue("jobs")
		// By priority, one more than the last count in the file, which has no item at 77.
		wants := map[int64]int64{5: 2, -3: 1, 0: 1, 1 << 40: 8, 77: 0}

		for priority, count := range wants {
			id := f.push(q, priority, "a\x00b")
			if id.Priority != priority || id.Count != count {
				f.Errorf("push at %d after the recipe's items has id %+v, want count %d",
					priority, id, count)
			}

			key := items(f.priority, "jobs").Pack(tuple.Tuple{priority, count, id.Random[:]})
			want := []byte("a\x00b")

			if f.format == fdbpq.TupleValues {
				want = tuple.Tuple{want}.Pack()
			}
			f.wantStored(key, want)
		}

		want := len(before) + len(wants) + len(wants) + 1 // a number for each priority, and one
		if got := len(f.stored(f.priority)); got != want {
			f.Errorf("%d keys, want %d: the items and their numbers", got, want)
		}
		wantEqual(f.T, "Len", f.length(q), int64(len(wants)))
	})
}

// An item that we enqueue is what the recipe would have written: the next index, 20 bytes, the
// value in the same format.
func TestEnqueuedItemsAreRecipeItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		empty := f.fifoQueue("empty")
		id, err := do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
			return empty.Enqueue(tx, message("x"))
		})
		if err != nil || id.Count != 1 || id.Priority != 0 {
			f.Errorf("first id of a queue is %+v (error %v), want index 1 as the recipe has",
				id, err)
		}

		f.recipePuts(f.fifo, true)
		q := f.fifoQueue("jobs")
		id, err = do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
			return q.Enqueue(tx, message(""))
		})
		if err != nil || id.Count != 301 { // the last index in the file is 300
			f.Errorf("id after index 300 is %+v (error %v)", id, err)
		}

		want := []byte{}
		if f.format == fdbpq.TupleValues {
			want = []byte{0x01, 0x00}
		}
		f.wantStored(items(f.fifo, "jobs").Pack(tuple.Tuple{int64(301), id.Random[:]}), want)
	})
}

func (f *fixture) wantStored(key, want []byte) {
	f.Helper()
	got, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]byte, error) {
		return r.Get(key).Get()
	})
	if err != nil || got == nil || !bytes.Equal(got, want) {
		f.Errorf("key %x holds %x (error %v), want %x", key, got, err, want)
	}
}
