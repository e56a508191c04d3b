package fdbpq

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// cursorFixture is a queue with items at the priorities 0 to 9, in a store that counts reads.
func cursorFixture(t *testing.T) (*countkv.DB, *PriorityQueue) {
	store := countkv.New(memkv.New(memkv.Options{}))
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	q := &PriorityQueue{handle{fuzzLayout(false, RawValues)}}
	err := kv.Update(t.Context(), store, func(tx kv.Transaction) error {
		for priority := range int64(10) {
			if _, err := q.Push(tx, priority, Message{Value: fmt.Append(nil, priority)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	store.Take()
	return store, q
}

// A cursor returns all items in order, whatever the size of its pages.
func TestCursorGoesOn(t *testing.T) {
	store, q := cursorFixture(t)
	for _, end := range []End{Front, Back} {
		for want := 1; want <= 12; want++ {
			got, err := kv.ReadTransact(t.Context(), store, func(r kv.Reader) (got []int64, err error) {
				c := state.Walk(q.l, r, end, want, MaxMessageSize, 100)
				for {
					s, err := c.Peek()
					if err != nil || s == nil {
						return got, err
					}
					got = append(got, s.Item.ID.Priority)
					c.Drop()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if end == Back {
				slices.Reverse(got)
			}
			if !slices.Equal(got, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
				t.Errorf("end %d, pages of %d: priorities %v", end, want, got)
			}
			pages := 10/want + 1
			if costs := store.Take(); !slices.Equal(costs, []countkv.Cost{{Reads: pages, Rounds: pages}}) {
				t.Errorf("end %d, pages of %d: costs %+v, want %d reads", end, want, costs, pages)
			}
		}
	}
}

// A cursor conflicts with changes in the pages that it read, and nowhere else.
func TestCursorConflicts(t *testing.T) {
	for _, end := range []End{Front, Back} {
		for want := 1; want <= 4; want++ {
			for passed := range 6 {
				looked := max(want, (passed+want-1)/want*want)
				for at := range 10 {
					err := changeMeanwhile(t, end, at, func(tx kv.Transaction, l *codec.Layout) error {
						c := state.Walk(l, tx, end, want, MaxMessageSize, 100)
						for range passed {
							if _, err := c.Peek(); err != nil {
								return err
							}
							c.Drop()
						}
						return c.Arrive()
					})
					if got := errors.Is(err, kv.ErrConflict); got != (at < looked) {
						t.Errorf("end %d, pages of %d, %d passed: error %v after item %d changed", end, want, passed, err, at)
					}
				}
			}
		}
	}
}

// changeMeanwhile runs fn in a transaction while another removes the at'th item from the
// given end.
func changeMeanwhile(t *testing.T, end End, at int, fn func(tx kv.Transaction, l *codec.Layout) error) error {
	t.Helper()
	store, q := cursorFixture(t)
	tx, err := store.Begin(t.Context(), kv.BeginOptions{})
	if err == nil {
		defer tx.Cancel()
		err = fn(tx, q.l)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = kv.Update(t.Context(), store, func(tx kv.Transaction) error {
		pairs, err := tx.GetRange(q.l.ItemRange(), kv.RangeOptions{Reverse: end == Back}).Get()
		if err == nil {
			tx.Clear(pairs[at].Key)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tx.Set([]byte("else"), nil)
	_, err = tx.Commit().Get()
	return err
}

// For all roots of up to two pieces, every night three: the areas of those that are accepted do not overlap,
// byte by byte, and the areas of those that are refused would.
func TestAreasNeverOverlap(t *testing.T) {
	pieces := []string{"a", "\x00", "\xff", "-x", "-queues", "-store"}
	texts := []string{""}
	for begin := 0; len(texts) < harness.Times(1+6+36, 1+6+36+216); {
		end := len(texts)
		for _, text := range texts[begin:end] {
			for _, piece := range pieces {
				texts = append(texts, text+piece)
			}
		}
		begin = end
	}
	accepted, refused := 0, 0
	for _, priority := range texts {
		for _, fifo := range texts {
			k, err := NewKeyspace(priority, fifo, RawValues)
			switch {
			case err == nil:
				accepted++
				ranges := append(k.ranges(), internal(priority+"-store"), internal(fifo+"-store"))
				if meet(ranges) {
					t.Fatalf("%q and %q are accepted, and meet", priority, fifo)
				}
			case !errors.Is(err, ErrKeyspace):
				t.Fatal(err)
			case priority != "" && fifo != "":
				refused++
				var ranges []kv.Range
				for _, root := range []string{priority, priority + "-queues", priority + "-x", priority + "-store", fifo, fifo + "-queues", fifo + "-store"} {
					ranges = append(ranges, internal(root))
				}
				if !meet(ranges) {
					t.Fatalf("%q and %q are refused, and do not meet: %v", priority, fifo, err)
				}
			}
		}
	}
	if accepted == 0 || refused == 0 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// ranges returns where k keeps things: the lists, the receipts, and some queues of each kind
// with names that are easily mixed up.
func (k *Keyspace) ranges() []kv.Range {
	receipts := codec.Within(k.s.Receipts.Bytes())
	ranges := []kv.Range{receipts, codec.Within([]byte(k.s.Priority.List.Prefix)), codec.Within([]byte(k.s.Fifo.List.Prefix))}
	for _, kind := range []*codec.Branch{&k.s.Priority, &k.s.Fifo} {
		for _, name := range []string{"a", "a\x00", "\xff"} {
			l, err := k.s.LayoutOf(kind, name)
			if err != nil {
				panic(err)
			}
			for _, prefix := range [][]byte{l.Key(codec.KindItem, 1), l.Key(codec.KindMeta, 1), l.Key(codec.KindRequest, 1), l.Key(codec.KindAnswer, 1), l.Key(codec.KindCounter, 1)} {
				ranges = append(ranges, codec.Within(prefix))
			}
			ranges = append(ranges, kv.SingleKey(l.TotalKey()))
		}
	}
	return ranges
}

func internal(root string) kv.Range {
	return codec.Within(tuple.NewSubspace(tuple.Tuple{root}).Bytes())
}

// meet reports whether any two of the ranges overlap, none of which is empty. It sorts them.
func meet(ranges []kv.Range) bool {
	slices.SortFunc(ranges, func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) })
	for i := 1; i < len(ranges); i++ {
		if bytes.Compare(ranges[i].Begin, ranges[i-1].End) < 0 {
			return true
		}
	}
	return false
}

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed: see
// codec.List.
const ListedLife = time.Minute

// MaxHeldValue is the longest stored value that can be leased.
const MaxHeldValue = codec.MaxHeldValue

// ApplyBehindAt is Apply for queues where no more than page entries of the time index are handled, and
// pops search once they have passed over one item.
func ApplyBehindAt(tx kv.Transaction, ops []Op, now time.Time, page int) ([]Result, error) {
	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	t.duePage, t.passes = page, 1
	return t.results, t.apply()
}

// ClearItems removes the items as a program with the bare recipe may.
func (q *PriorityQueue) ClearItems(tx kv.Transaction) { tx.ClearRange(q.l.ItemRange()) }

// HeldKey is where an item is while it is held.
func HeldKey(q Target, id *ID) []byte { return q.Layout().HeldKey(id) }
