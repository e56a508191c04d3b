package fdbpq

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
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
			m := Message{Value: fmt.Append(nil, priority)}
			if _, err := q.Push(tx, priority, m); err != nil {
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
			got, err := kv.ReadTransact(t.Context(), store,
				func(r kv.Reader) (got []int64, err error) {
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
			costs := store.Take()
			if !slices.Equal(costs, []countkv.Cost{{Reads: pages, Rounds: pages}}) {
				t.Errorf("end %d, pages of %d: costs %+v, want %d reads", end, want, costs, pages)
			}
		}
	}
}

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed: see
// codec.List.
const ListedLife = time.Minute

// MaxHeldValue is the longest stored value that can be leased.
const MaxHeldValue = codec.MaxHeldValue

// ApplyBehindAt is Apply for queues where no more than page entries of the time index are handled,
// and pops search once they have passed over one item.
func ApplyBehindAt(tx kv.Transaction, ops []Op, now time.Time, page int) ([]Result, error) {
	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	t.duePage, t.bounds.passed = page, 1
	return t.results, t.apply()
}

// Searches are bounds of searches: how many counters of groups they read at once, how many groups
// they remember, and whether there is any time for them.
type Searches struct {
	Rows, Heads int
	NoTime      bool
}

// ApplySearching is Apply for pops that search once they have passed over one item, or two if the
// counters of the groups do not fit into a page. Zero bounds are the usual ones, and the time of
// searches has none.
func ApplySearching(tx kv.Transaction, ops []Op, now time.Time, s Searches) ([]Result, error) {
	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	t.bounds = searchBounds{
		passed:    1,
		passedOn:  2,
		groupRows: cmp.Or(s.Rows, usualBounds.groupRows),
		heads:     cmp.Or(s.Heads, usualBounds.heads),
		time:      time.Hour,
	}

	if s.NoTime {
		t.bounds.time = 0
	}

	return t.results, t.apply()
}

// ClearItems removes the items as a program with the bare recipe may.
func (q *PriorityQueue) ClearItems(tx kv.Transaction) { tx.ClearRange(q.l.ItemRange()) }

// HeldKey is where an item is while it is held.
func HeldKey(q Target, id *ID) []byte { return q.Layout().HeldKey(id) }
