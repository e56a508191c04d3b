package fdbpq

import (
	"errors"
	"fmt"
	"slices"
	"testing"

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
					s, err := c.Next()
					if err != nil || s == nil {
						return got, err
					}
					got = append(got, s.Item.ID.Priority)
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
							if _, err := c.Next(); err != nil {
								return err
							}
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
