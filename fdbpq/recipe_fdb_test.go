//go:build fdb

package fdbpq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/recipe"
)

// recipeProgram is a program that uses the published recipes.
type recipeProgram struct {
	db fdb.Database
	recipe.Queue
}

// openRecipe returns a program that uses the queue in s.
func openRecipe(tb testing.TB, clusterFile string, s tuple.Subspace, packed bool) recipeProgram {
	db, err := fdb.OpenDatabase(clusterFile)
	if err != nil {
		tb.Fatal(err)
	}
	return recipeProgram{db, recipe.Queue{Items: subspace.FromBytes(s.Sub("i").Bytes()), Packed: packed}}
}

func (r recipeProgram) push(priority int64, value string) error {
	_, err := r.db.Transact(func(tr fdb.Transaction) (any, error) {
		return nil, r.Push(tr, priority, []byte(value))
	})
	return err
}

// pop removes and returns the first value, or the last if max, and the number of attempts it
// took. The value is "" if there is none.
func (r recipeProgram) pop(max bool) (value string, attempts int, err error) {
	popped, err := r.db.Transact(func(tr fdb.Transaction) (any, error) {
		attempts++
		return r.Pop(tr, max)
	})
	if err != nil {
		return "", attempts, err
	}
	return string(popped.([]byte)), attempts, nil
}

// Items of recipe programs pass through staged pops unchanged: pops get them, and the recipe
// can pop those that go back, from both ends.
func TestStagedPopsOfRecipeItems(t *testing.T) {
	for name, format := range map[string]fdbpq.ValueFormat{"raw": fdbpq.RawValues, "tuple": fdbpq.TupleValues} {
		t.Run(name, func(t *testing.T) {
			file := testenv.FDBClusterFile(t)
			db, err := fdbkv.Open(fdbkv.Options{ClusterFile: file})
			if err != nil {
				t.Fatal(err)
			}
			f := newFixture(t, db, format)
			q := f.queue("recipe")
			theirs := openRecipe(t, file, tuple.NewSubspace(tuple.Tuple{f.priority, "recipe"}), format == fdbpq.TupleValues)
			for _, value := range []string{"-2 a", "-1 b", "0 c", "7 d", "8 e"} {
				var priority int64
				_, _ = fmt.Sscan(value, &priority)
				wantError(t, theirs.push(priority, value), nil)
			}
			p := fdbpq.NewPopper(db, q)
			f.line(p, fdbpq.Front, fdbpq.Back)
			f.serve(p) // "-2 a" and "8 e" are with pops that are gone
			f.wantPop(p.PopMin, "-1 b")
			if value, _, err := theirs.pop(true); err != nil || value != "7 d" {
				t.Errorf("the recipe popped %q (error %v), want 7 d", value, err)
			}
			clock := newClock(time.Now().Add(fdbpq.AnswerLife))
			p = fdbpq.NewPopper(db, q)
			clock.give(p)
			f.wantPop(p.PopMin, "-2 a")
			for _, want := range []string{"8 e", "0 c"} {
				if value, _, err := theirs.pop(true); err != nil || value != want {
					t.Errorf("the recipe popped %q (error %v), want %q", value, err, want)
				}
			}
			wantEqual(t, "length: items of others are not counted", f.length(q), 0)
		})
	}
}

// When recipe programs and Poppers use one queue at the same time, every item comes out once.
func TestRecipeAndPoppersAtOnce(t *testing.T) {
	const workers, each = 4, 50
	file := testenv.FDBClusterFile(t)
	db, err := fdbkv.Open(fdbkv.Options{ClusterFile: file})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, db, fdbpq.RawValues)
	f.corrupt = true // recipe programs do not count items, so the counters are wrong
	q := f.queue("both")
	theirs := openRecipe(t, file, tuple.NewSubspace(tuple.Tuple{f.priority, "both"}), false)
	values := make(chan string, 2*workers*each)
	errs := make(chan error, 4*workers)
	for worker := range workers {
		go func() {
			for i := range each {
				if err := theirs.push(int64(i%5), fmt.Sprint("theirs", worker, "/", i)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
		go func() {
			for i := range each {
				_, err := kv.Transact(f.ctx, db, func(tx kv.Transaction) (fdbpq.ID, error) {
					return q.Push(tx, int64(i%5), message(fmt.Sprint("ours", worker, "/", i)))
				})
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
		go func() {
			for range each {
				value := ""
				for value == "" {
					var err error
					if value, _, err = theirs.pop(worker%2 == 0); err != nil {
						errs <- err
						return
					}
				}
				values <- value
			}
			errs <- nil
		}()
		go func() {
			p := fdbpq.NewPopper(db, q)
			for range each {
				item, err := p.PopMin(f.ctx)
				for errors.Is(err, fdbpq.ErrEmpty) {
					item, err = p.PopMin(f.ctx)
				}
				if err != nil {
					errs <- err
					return
				}
				values <- string(item.Value)
			}
			errs <- nil
		}()
	}
	for range 4 * workers {
		wantError(t, <-errs, nil)
	}
	close(values)
	seen := map[string]bool{}
	for value := range values {
		if seen[value] {
			t.Errorf("%q was popped twice", value)
		}
		seen[value] = true
	}
	wantEqual(t, "values popped", len(seen), 2*workers*each)
}
