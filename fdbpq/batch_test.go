package fdbpq_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A batch that only reads writes nothing, not even a receipt. Of other batches only the newest
// receipt is left.
func TestReadOnlyBatch(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("a"), f.fifoQueue("a")
		ops := []fdbpq.Op{
			op(opLen, q), op(opPeekMin, q), op(opPeekMax, q), op(opPeekMin, fifo), op(opLen, fifo),
		}

		empty := fdbpq.ErrEmpty.Error()
		wantList(f.T, "results", summary(ops, f.apply(ops...)), "0", empty, empty, empty, "0")

		f.push(q, 1, "x")
		f.push(q, 2, "y")
		wantList(f.T, "results", summary(ops, f.apply(ops...)), "2", "x", "y", empty, "0")
		wantEqual(f.T, "receipts", len(f.check().Receipts), 0)

		// Neither does a pop that finds nothing.
		wantList(f.T, "pop", summary(ops[:1], f.apply(op(opPopMin, f.queue("none")))), empty)
		wantEqual(f.T, "receipts", len(f.check().Receipts), 0)

		// Of batches that write, only the last has one.
		for range 5 {
			f.apply(opPush(q, 1, "v"))
			f.apply(op(opPopMin, q))
			f.apply(op(opPopMin, f.queue("none")))
		}
		wantEqual(f.T, "receipts", len(f.stored(f.priority+"-x")), 1)
	})
}

// Corrupt data in one queue affects only the operations on that queue.
func TestBatchWithCorruptQueue(t *testing.T) {
	// Each breaks queue "bad", which holds an item at priority 5.
	damages := map[string]func(f *fixture, tx kv.Transaction){
		"item key": func(f *fixture, tx kv.Transaction) {
			tx.Set(items(f.priority, "bad").Pack(tuple.Tuple{int64(5), int64(9)}), nil)
			tx.Set(items(f.priority, "bad").Pack(tuple.Tuple{int64(-9), "x"}), nil)
		},
		"headers": func(f *fixture, tx kv.Transaction) {
			tx.ClearRange(everythingIn(f, "bad", "m"))
		},
		"garbage in headers": func(f *fixture, tx kv.Transaction) {
			r := everythingIn(f, "bad", "m")
			pairs, _ := tx.GetRange(r, kv.RangeOptions{}).Get()
			garbage := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x02}
			tx.Set(pairs[0].Key, garbage)
		},
		"number": func(f *fixture, tx kv.Transaction) {
			tx.Set(tuple.Tuple{f.priority, "bad", "n"}.Pack(), []byte("123"))
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) { testCorruptQueue(f, damage) })
		})
	}
}

func everythingIn(f *fixture, queue, kind string) kv.Range {
	begin, end := tuple.NewSubspace(tuple.Tuple{f.priority, queue, kind}).Range()
	return kv.Range{Begin: begin, End: end}
}

func testCorruptQueue(f *fixture, damage func(*fixture, kv.Transaction)) {
	f.corrupt = true
	bad, good := f.queue("bad"), f.queue("good")

	headers := fdbpq.Op{
		Kind:     fdbpq.OpPush,
		Queue:    bad,
		Priority: 5,
		Message:  fdbpq.Message{Headers: map[string][]string{"A": {"b"}}},
	}

	f.apply(headers, opPush(good, 1, "first"), opPush(good, 2, "second"), opPush(good, 3, "third"))
	write(f, func(tx kv.Transaction) { damage(f, tx) })
	before := len(f.stored(f.priority))

	var ops []fdbpq.Op
	for _, q := range []*fdbpq.PriorityQueue{bad, good} {
		ops = append(ops, op(opLen, q), op(opPopMin, q), op(opPopMin, q), op(opPopMax, q),
			op(opPeekMin, q), op(opPeekMax, q))
	}

	// The first six operations are on the bad queue.
	results := f.apply(ops...)
	empty := fdbpq.ErrEmpty.Error()
	wantList(f.T, "the good queue", summary(ops[6:], results[6:]),
		"3", "first", "second", "third", empty, empty)

	corrupt := 0
	for _, r := range results[:6] {
		if r.Err != nil && strings.Contains(r.Err.Error(), fdbpq.ErrCorrupt.Error()) {
			wantError(f.T, r.Err, fdbpq.ErrCorrupt)
			corrupt++
		}
	}

	if corrupt == 0 {
		f.Errorf("nobody was told: %+v", results[:6])
	}

	// The three items of the good queue and their numbers, and no key of the bad.
	if results[1].Err != nil {
		wantEqual(f.T, "keys", len(f.stored(f.priority)), before-7)
	}

	// What reads the bad queue fails alone, and what does not read its bad keys succeeds.
	reads := []fdbpq.Op{
		op(opLen, bad), op(opPeekMin, bad), op(opLen, good), opPush(bad, 5, "more"),
		opPush(good, 5, "more"),
	}

	looks := f.apply(append(reads[:3:3], op(fdbpq.Op{Kind: fdbpq.OpInfo}, bad))...)
	wantEqual(f.T, "the info fails like the length", looks[3].Err != nil, looks[0].Err != nil)
	wantEqual(f.T, "there is an info", looks[3].Info != nil, looks[3].Err == nil)

	if results, err := f.batcher.Apply(f.ctx, reads); err != nil || results[4].Err != nil {
		f.Errorf("a batch of pushes failed: %+v, %v", results, err)
	}
}

// A queue is listed even if the disk hangs for a while and then loses the first pushes,
// which were not acknowledged.
func TestQueueIsListedAfterLostPushes(t *testing.T) {
	disk := crashfs.New()
	f := newFixture(t, openPebble(t, disk), fdbpq.RawValues)
	q := f.queue("jobs")
	lost := disk.CrashClone(vfs.CrashCloneCfg{}) // the disk without the pushes below
	push := []fdbpq.Op{opPush(q, 1, "v")}
	clock := newClock(time.Now())
	clock.stepping(time.Minute)
	f.batcher.SetNow(clock.now)
	pending := []*fdbpq.Pending{f.batcher.Start(f.ctx, push), f.batcher.Start(f.ctx, push)}

	after := openPebble(t, lost)
	defer after.Close()

	for range 2 { // the second does not look any more
		must(fdbpq.NewBatcher(after, f.Keyspace).Apply(f.ctx, push))
	}

	names, err := kv.ReadTransact(f.ctx, after, func(r kv.Reader) ([]string, error) {
		return f.PriorityQueues(r, "", 10).Get()
	})
	wantEqual(t, "error", err, nil)
	wantList(t, "queues", names, "jobs")

	for _, p := range pending {
		must(p.Wait())
	}
}

// grouped makes the operations, which are pushes, follow each other.
func grouped(ops ...fdbpq.Op) []fdbpq.Op {
	for i := range ops {
		ops[i].Follows = i > 0
	}
	return ops
}

// If one push of a group fails, all of them do, and the rest of the batch succeeds.
func TestPushGroupFailsTogether(t *testing.T) {
	large := strings.Repeat("x", fdbpq.MaxMessageSize+1)
	for name, test := range map[string]struct {
		bad  func(q *fdbpq.PriorityQueue) fdbpq.Op
		want error
	}{
		"corrupt priority": {
			func(q *fdbpq.PriorityQueue) fdbpq.Op { return opPush(q, 5, "v") },
			fdbpq.ErrCorrupt,
		},
		"large message": {
			func(q *fdbpq.PriorityQueue) fdbpq.Op { return opPush(q, 1, large) },
			fdbpq.ErrMessageTooLarge,
		},
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

						text := fmt.Sprintf("item %d:", at)
						if !strings.Contains(r.Err.Error(), text) {
							f.Errorf("the error %q does not say %q", r.Err, text)
						}
					}

					got := f.apply(op(opPopMin, q), op(opPopMin, q), op(opLen, q))
					pushed := []string{string(got[0].Item.Value), string(got[1].Item.Value)}
					wantList(f.T, "pushed", pushed, "before", "after")
					wantEqual(f.T, "length", f.length(q), 0)
				}
			})
		})
	}
}

// A group that fits into a transaction commits, even with long names, a priority for each item,
// and values that grow when they are stored. A larger one is refused.
func TestLargePushGroup(t *testing.T) {
	headers := map[string][]string{"a": {"b"}}
	for name, shape := range map[string]struct {
		n, size int // of the group that is too large: items, and bytes of each value
		headers map[string][]string
	}{
		"small":              {n: 16384, size: 1},
		"small with headers": {n: 16384, size: 1, headers: headers},
		"medium":             {n: 2048, size: 10_000},
		"large":              {n: 128, size: 300_000, headers: headers},
		"two":                {n: 2, size: fdbpq.MaxMessageSize},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "small" {
				harness.OnlyNightly(t) // as with headers
			}

			run := onStores
			if shape.n > 200 { // which means nothing to a store
				run = onEngines
			}

			run(t, func(f *fixture) {
				if f.brief && shape.n > 2048 {
					f.Skip("so many items take longer than FoundationDB lets a transaction live")
				}

				q := f.queue(strings.Repeat("n", fdbpq.MaxQueueName))
				group := make([]fdbpq.Op, shape.n)
				value := make([]byte, shape.size)

				for i := range group {
					m := fdbpq.Message{Value: value, Headers: shape.headers}
					group[i] = fdbpq.Op{
						Kind:     fdbpq.OpPush,
						Queue:    q,
						Priority: int64(i) << 40,
						Message:  m,
						Follows:  i > 0,
					}
				}

				results := f.apply(group...)
				wantError(f.T, results[0].Err, fdbpq.ErrMessageTooLarge)

				var n, size, most int
				format := fdbpq.ErrMessageTooLarge.Error() +
					": %d items take %d bytes in a transaction: want at most %d"
				_, err := fmt.Sscanf(results[0].Err.Error(), format, &n, &size, &most)
				if err != nil {
					f.Fatalf("%q: %v", results[0].Err, err)
				}

				// They all have one size, so the error says how many fit.
				done := most / (size / n)
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

// A group that is too large is refused before its message ids and unique keys are read, which
// would take more memory than its items.
func TestTooLargeGroupReadsNothing(t *testing.T) {
	onEngines(t, func(f *fixture) {
		reads := countkv.New(f.db)
		b := fdbpq.NewBatcher(reads, f.Keyspace)
		q := f.queue("jobs")
		group := make([]fdbpq.Op, 16384)

		for i := range group {
			m := fdbpq.Message{MsgID: fmt.Sprint("id", i), Unique: fmt.Sprint("key", i)}
			group[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: m, Follows: i > 0}
		}

		alone := opPush(q, 1, "alone")
		alone.Message.MsgID, alone.Message.Unique = "id0", "key0"
		results := must(b.Apply(f.ctx, append(group, alone)))

		for i, r := range results[:len(group)] {
			wantError(f.T, r.Err, fdbpq.ErrMessageTooLarge)

			text := r.Err.Error()
			if !strings.HasPrefix(text, fdbpq.ErrMessageTooLarge.Error()+": 16384 items") {
				f.Fatalf("item %d: %q", i, text)
			}
		}
		wantError(f.T, results[len(group)].Err, nil)

		for _, cost := range reads.Take() {
			if cost.Reads > 100 {
				f.Errorf("%d reads: want those of the push that was done", cost.Reads)
			}
		}
		wantEqual(f.T, "length", f.length(q), 1)
	})
}

// Results that a Batcher reuses show nothing of what they held before.
func TestReuse(t *testing.T) {
	keyspace := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	q := must(keyspace.PriorityQueue("jobs"))
	batcher := fdbpq.NewBatcher(memkv.New(memkv.Options{}), keyspace)

	full := fdbpq.Result{
		Item:      fdbpq.Item{Message: fdbpq.Message{Value: []byte("of another")}},
		Duplicate: true,
		Ready:     7,
		Len:       7,
		Rank:      7,
		Freed:     true,
		Err:       errors.New("of another"),
	}

	for round, n := range []int{3, 1, 40, 3, 40} { // fewer and more than the results had room for
		ops := []fdbpq.Op{{Kind: fdbpq.OpLen, Queue: q}}
		for range n {
			ops = append(ops, opPush(q, 0, "mine"), op(opPopMin, q))
		}

		results := must(batcher.Apply(t.Context(), ops))
		for i := range results {
			want := fdbpq.Result{Item: results[i].Item}
			value := want.Item.Value
			if i > 0 && i%2 == 0 && string(value) != "mine" || i%2 == 1 && value != nil {
				t.Errorf("round %d, operation %d: value %q", round, i, value)
			}
			if !reflect.DeepEqual(results[i], want) {
				t.Errorf("round %d, operation %d: %+v: want nothing but an item",
					round, i, results[i])
			}

			results[i] = full
		}

		batcher.Reuse(results)
	}
}
