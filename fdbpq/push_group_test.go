package fdbpq_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// grouped makes the operations, which are pushes, follow each other.
func grouped(ops ...fdbpq.Op) []fdbpq.Op {
	for i := range ops {
		ops[i].Follows = i > 0
	}
	return ops
}

// Pushes that follow each other keep their order within each priority, beside other
// operations in the same batch.
func TestPushGroup(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("a"), f.fifoQueue("a")
		f.apply(opPush(q, 2, "old"), opPush(fifo, 0, "f-old"))
		group := grouped(opPush(q, 3, "d"), opPush(q, 2, "b"), opPush(q, 1, "a"), opPush(q, 2, "c"), opPush(q, 0, "first"))
		ops := append([]fdbpq.Op{op(opPopMin, q), op(opLen, q), opPush(q, 9, "alone")}, group...)
		ops = append(ops, op(opPopMax, q), op(opPeekMin, q))
		ops = append(ops, grouped(opPush(fifo, 0, "f1"), opPush(fifo, 0, "f2"))...)
		results := f.apply(ops...)
		wantList(f.T, "results", summary(ops, results), "first", "1", "", "", "", "", "", "", "alone", "a", "", "")
		wantList(f.T, "left", f.values(q.PopMin), "a", "old", "b", "c", "d")
		wantList(f.T, "FIFO", f.values(fifo.Dequeue), "f-old", "f1", "f2")
	})
}

// If one of a group fails, nothing of the group is pushed, and all else of the batch is.
func TestPushGroupFailsTogether(t *testing.T) {
	large := strings.Repeat("x", fdbpq.MaxMessageSize+1)
	for name, test := range map[string]struct {
		bad  func(q *fdbpq.PriorityQueue) fdbpq.Op
		want error
	}{
		"corrupt priority": {func(q *fdbpq.PriorityQueue) fdbpq.Op { return opPush(q, 5, "v") }, fdbpq.ErrCorrupt},
		"large message":    {func(q *fdbpq.PriorityQueue) fdbpq.Op { return opPush(q, 1, large) }, fdbpq.ErrMessageTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				f.corrupt = true
				q := f.queue("a")
				write(f, func(tx kv.Transaction) {
					tx.Set(items(f.priority, "a").Pack(tuple.Tuple{int64(5), "text"}), []byte("v"))
				})
				for at := range 3 {
					group := []fdbpq.Op{opPush(q, 1, "g"), opPush(q, 2, "g"), opPush(q, 3, "g")}
					group[at] = test.bad(q)
					ops := append([]fdbpq.Op{opPush(q, 0, "before")}, grouped(group...)...)
					ops = append(ops, opPush(q, 0, "after"))
					results := f.apply(ops...)
					for i, r := range results {
						if inGroup := i >= 1 && i <= 3; !inGroup {
							wantError(f.T, r.Err, nil)
							continue
						}
						wantError(f.T, r.Err, test.want)
						if text := fmt.Sprintf("item %d:", at); !strings.Contains(r.Err.Error(), text) {
							f.Errorf("the error %q does not say %q", r.Err, text)
						}
					}
					got := f.apply(op(opPopMin, q), op(opPopMin, q), op(opLen, q))
					wantList(f.T, "pushed", []string{string(got[0].Item.Value), string(got[1].Item.Value)}, "before", "after")
					wantEqual(f.T, "length", f.length(q), 0)
				}
			})
		})
	}
}

// A group that fits into a transaction commits, with long names, a priority for each
// item, and values that take more room than they have bytes. A larger one is refused.
func TestLargePushGroup(t *testing.T) {
	headers := map[string][]string{"a": {"b"}}
	for name, shape := range map[string]struct {
		n, size int // of the group that is too large
		headers map[string][]string
	}{
		"small": {16384, 1, nil}, "small with headers": {16384, 1, headers},
		"medium": {2048, 10_000, nil}, "large": {128, 300_000, headers}, "two": {2, fdbpq.MaxMessageSize, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				q := f.queue(strings.Repeat("n", 128))
				group := make([]fdbpq.Op, shape.n)
				value := make([]byte, shape.size)
				for i := range group {
					m := fdbpq.Message{Value: value, Headers: shape.headers}
					group[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i) << 40, Message: m, Follows: i > 0}
				}
				results := f.apply(group...)
				wantError(f.T, results[0].Err, fdbpq.ErrMessageTooLarge)
				var n, size, most int
				format := fdbpq.ErrMessageTooLarge.Error() + ": %d items take %d bytes in a transaction: want at most %d"
				if _, err := fmt.Sscanf(results[0].Err.Error(), format, &n, &size, &most); err != nil {
					f.Fatalf("%q: %v", results[0].Err, err)
				}
				done := most / (size / n) // they all have one size
				wantError(f.T, f.apply(group[:done+1]...)[0].Err, fdbpq.ErrMessageTooLarge)
				wantEqual(f.T, "length", f.length(q), 0)
				for i, r := range f.apply(group[:done]...) {
					if r.Err != nil {
						f.Fatalf("item %d of %d: %v", i, done, r.Err)
					}
				}
				wantEqual(f.T, "length", f.length(q), int64(done))
				if done == 0 || done*shape.size > 10_000_000 || shape.size == 10_000 && done < 400 {
					f.Errorf("the largest group has %d items", done)
				}
			})
		})
	}
}

// Whatever becomes of its commits, a group is in the queue as a whole, once, or not at all.
func TestPushGroupOfUnknownOutcome(t *testing.T) {
	for _, fault := range unanswered {
		for _, answered := range []bool{true, false} {
			f := newUnsure(t, faultkv.Options{})
			q := f.queue("a")
			f.apply(opPush(q, 1, "old"))
			ops := append(grouped(opPush(q, 2, "x"), opPush(q, 1, "y"), opPush(q, 2, "z")), op(opPopMin, q))
			wantLeft := []string{"y", "x", "z"}
			if answered {
				f.faults.Next(fault)
				results := f.apply(ops...)
				wantEqual(t, "popped", string(results[3].Item.Value), "old")
			} else {
				f.abandon(fault, ops...)
				if err := f.batcher.Settle(f.ctx); err != nil {
					t.Fatal(err)
				}
				wantLeft = []string{"old", "y", "x", "z"}
			}
			f.calm()
			f.check()
			got := f.values(q.PopMin)
			if !answered && len(got) == 1 {
				wantLeft = []string{"old"} // the batch was not done
			}
			wantList(t, fmt.Sprintf("after %v, answered: %t", fault, answered), got, wantLeft...)
		}
	}
}

// Groups of several Batchers race with pops under faults: at any moment an item is there only
// if its whole group has been.
func TestPushGroupsRace(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
	q := f.queue("a")
	const workers, rounds, size = 4, 40, 5
	popped := make([]map[string]int, workers)
	f.run(seed, workers, func(w *worker) {
		seen := map[string]int{}
		popped[w.number] = seen
		for round := range rounds {
			var ops []fdbpq.Op
			for i := range size {
				ops = append(ops, opPush(q, int64(w.random.IntN(3)), fmt.Sprintf("%d-%d-%d", w.number, round, i)))
			}
			ops = append(grouped(ops...), op(opPopMin, q), op(opPopMax, q))
			results, err := w.batcher.Apply(f.ctx, ops)
			if err != nil {
				f.Errorf("Apply: %v", err)
				return
			}
			for _, r := range results[size:] {
				if r.Err == nil {
					seen[string(r.Item.Value)]++
				}
			}
		}
	})
	f.calm()
	all := map[string]int{}
	for _, value := range f.values(q.PopMin) {
		all[value]++
	}
	for _, seen := range popped {
		for value, n := range seen {
			all[value] += n
		}
	}
	if len(all) != workers*rounds*size {
		t.Errorf("%d different items: want %d", len(all), workers*rounds*size)
	}
	for value, n := range all {
		if n != 1 {
			t.Errorf("%s came out %d times", value, n)
		}
	}
}

// A group that is too large is refused before its message ids and unique keys are looked for. The reads would
// take more memory than its items.
func TestTooLargeGroupReadsNothing(t *testing.T) {
	onEngines(t, func(f *fixture) {
		reads := &getStore{Database: f.db}
		b := fdbpq.NewBatcher(reads, f.Keyspace)
		q := f.queue("jobs")
		group := make([]fdbpq.Op, 16384)
		for i := range group {
			m := fdbpq.Message{MsgID: fmt.Sprint("id", i), Unique: fmt.Sprint("key", i)}
			group[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: m, Follows: i > 0}
		}
		alone := opPush(q, 1, "alone")
		alone.Message.MsgID, alone.Message.Unique = "id0", "key0"
		results, err := b.Apply(f.ctx, append(group, alone))
		if err != nil {
			f.Fatal(err)
		}
		for i, r := range results[:len(group)] {
			wantError(f.T, r.Err, fdbpq.ErrMessageTooLarge)
			if text := r.Err.Error(); !strings.HasPrefix(text, fdbpq.ErrMessageTooLarge.Error()+": 16384 items") {
				f.Fatalf("item %d: %q", i, text)
			}
		}
		wantError(f.T, results[len(group)].Err, nil)
		if n := reads.gets.Load(); n > 100 {
			f.Errorf("%d reads: want those of the push that was done", n)
		}
		wantEqual(f.T, "length", f.length(q), 1)
	})
}

// getStore counts the keys that transactions read one by one.
type getStore struct {
	kv.Database
	gets atomic.Int64
}

func (s *getStore) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := s.Database.Begin(ctx, o)
	return getTransaction{tx, s}, err
}

type getTransaction struct {
	kv.Transaction
	store *getStore
}

func (tx getTransaction) Get(key []byte) kv.Future[[]byte] {
	tx.store.gets.Add(1)
	return tx.Transaction.Get(key)
}
