package fdbpq_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// grouped makes the operations, which are pushes, follow each other.
func grouped(ops ...fdbpq.Op) []fdbpq.Op {
	for i := range ops {
		ops[i].Follows = i > 0
	}
	return ops
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
			if name == "small" {
				harness.OnlyNightly(t) // as with headers
			}
			run := onStores
			if shape.n > 200 { // which means nothing to a store
				run = onEngines
			}
			run(t, func(f *fixture) {
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

// A group that is too large is refused before its message ids and unique keys are looked for. The reads would
// take more memory than its items.
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
			if text := r.Err.Error(); !strings.HasPrefix(text, fdbpq.ErrMessageTooLarge.Error()+": 16384 items") {
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
