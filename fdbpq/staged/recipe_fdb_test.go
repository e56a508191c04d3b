//go:build fdb

package staged

import (
	"errors"
	"fmt"
	"sync"
	"testing"

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

	return recipeProgram{
		db,
		recipe.Queue{Items: subspace.FromBytes(s.Sub("i").Bytes()), Packed: packed},
	}
}

// onRecipe is a fixture in FoundationDB, and a program that uses its queue.
func onRecipe(t *testing.T, format fdbpq.ValueFormat) (*fixture, recipeProgram) {
	file := testenv.FDBClusterFile(t)
	f := newFixture(t,
		must(fdbkv.Open(fdbkv.Options{ClusterFile: file, TransactionTimeout: testenv.Patience})),
		format)
	f.foreign = true // recipe programs do not count items, so the counters may be wrong

	return f, openRecipe(t, file, tuple.NewSubspace(tuple.Tuple{f.root, "jobs"}),
		format == fdbpq.TupleValues)
}

func (r recipeProgram) push(priority int64, value string) error {
	_, err := r.db.Transact(func(tr fdb.Transaction) (any, error) {
		return nil, r.Push(tr, priority, []byte(value))
	})
	return err
}

// pop removes and returns the first value, or the last if max; "" if there is none.
func (r recipeProgram) pop(max bool) (value string, err error) {
	popped, err := r.db.Transact(func(tr fdb.Transaction) (any, error) { return r.Pop(tr, max) })
	if err != nil {
		return "", err
	}

	return string(popped.([]byte)), nil
}

// Items of recipe programs pass through staged pops unchanged: pops get them, and the recipe can
// pop items that went back, from both ends.
func TestRecipeItems(t *testing.T) {
	for name, format := range map[string]fdbpq.ValueFormat{
		"raw":   fdbpq.RawValues,
		"tuple": fdbpq.TupleValues,
	} {
		t.Run(name, func(t *testing.T) {
			f, theirs := onRecipe(t, format)
			f.foreign = false // no counters yet

			wantTheirs := func(want string) {
				t.Helper()
				if value, err := theirs.pop(true); err != nil || value != want {
					t.Errorf("the recipe popped %q (error %v), want %q", value, err, want)
				}
			}

			for priority, value := range map[int64]string{
				-2: "a",
				-1: "b",
				0:  "c",
				7:  "d",
				8:  "e",
			} {
				wantError(t, theirs.push(priority, value), nil)
			}

			f.registerAbandoned(fdbpq.Front, fdbpq.Back)
			f.serve() // "a" and "e" are with pops that are gone
			f.wantPop(f.popper().PopMin, "b")
			wantTheirs("d")

			f.clock.advance(answerLife)
			f.wantPop(f.popper().PopMin, "a")
			wantTheirs("e")
			wantTheirs("c")
			wantEqual(t, "length: items of others are not counted", f.length(), 0)
		})
	}
}

// When recipe programs and Poppers use one queue at the same time, every item comes out once.
func TestRecipeAndPoppersAtOnce(t *testing.T) {
	const workers, each = 4, 50
	f, theirs := onRecipe(t, fdbpq.RawValues)
	var seen sync.Map
	var wg sync.WaitGroup

	process := func(do func(i int) (popped string, err error)) {
		wg.Go(func() {
			for i := range each {
				value, err := do(i)
				wantError(t, err, nil)

				if value == "" {
					continue
				}
				if _, twice := seen.LoadOrStore(value, true); twice {
					t.Errorf("%q was popped twice", value)
				}
			}
		})
	}

	for worker := range workers {
		process(func(i int) (string, error) {
			return "", theirs.push(int64(i%5), fmt.Sprint("theirs", worker, "/", i))
		})
		process(func(i int) (string, error) {
			m := fdbpq.Message{Value: fmt.Append(nil, "ours", worker, "/", i)}
			_, err := kv.Transact(f.ctx, f.db,
				func(tx kv.Transaction) (fdbpq.ID, error) { return f.q.Push(tx, int64(i%5), m) })
			return "", err
		})

		process(func(int) (value string, err error) {
			for value == "" && err == nil {
				value, err = theirs.pop(worker%2 == 0)
			}
			return value, err
		})

		p := New(f.db, f.q)
		process(func(int) (string, error) {
			item, err := p.PopMin(f.ctx)
			for errors.Is(err, fdbpq.ErrEmpty) {
				item, err = p.PopMin(f.ctx)
			}

			return string(item.Value), err
		})
	}

	wg.Wait()
	n := 0
	seen.Range(func(any, any) bool { n++; return true })

	wantEqual(t, "values popped", n, 2*workers*each)
}
