package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// opPushOnce is a push with a message id and a unique key.
func opPushOnce(q fdbpq.Target, msgID, unique string) fdbpq.Op {
	return fdbpq.Op{
		Kind:    fdbpq.OpPush,
		Queue:   q,
		Message: fdbpq.Message{Value: []byte("v"), MsgID: msgID, Unique: unique},
	}
}

// wantDuplicate checks that a push is a duplicate of the given item, or none.
func (f *fixture) wantDuplicate(what string, result fdbpq.Result, of *fdbpq.ID) {
	f.Helper()
	if result.Err != nil || result.Duplicate != (of != nil) || of != nil && result.Item.ID != *of {
		f.Errorf("%s: %+v, %v; want a duplicate of %v", what, result.Item.ID, result.Err, of)
	}
}

// A message id or unique key that is too long is refused, with the rest of its group. The longest
// ones find duplicates, and leave room for the reason of a nak.
func TestLongKeys(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	ok, long := strings.Repeat("\x00", fdbpq.MaxKey), strings.Repeat("x", fdbpq.MaxKey+1)

	for _, bad := range []fdbpq.Op{opPushOnce(q, long, ""), opPushOnce(q, "", long)} {
		bad.Follows = true
		results := f.apply(opPushOnce(q, "", ""), bad)
		wantErrors(t, results, fdbpq.ErrOp, fdbpq.ErrOp)
	}
	wantEqual(t, "items", f.length(q), 0)

	first := f.apply(opPushOnce(q, ok, ok))[0]
	f.wantDuplicate("longest", f.apply(opPushOnce(q, ok, ""))[0], &first.Item.ID)
	f.wantDuplicate("longest", f.apply(opPushOnce(q, "", ok))[0], &first.Item.ID)

	r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
	wantEqual(t, "keys", r.Item.MsgID+r.Item.Unique, ok+ok)

	nak := f.apply(fdbpq.Op{
		Kind:   fdbpq.OpNak,
		Queue:  q,
		Token:  r.Lease.Token,
		Reason: strings.Repeat("\x01", 2000),
	})[0]
	wantError(t, nak.Err, nil)
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Err, nil)
}

// A unique key without an item means nothing: programs with the bare recipe leave such keys
// behind.
func TestUniqueKeyWithoutItem(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.apply(opPushOnce(q, "", "k"))
		write(f, func(tx kv.Transaction) { tx.ClearRange(itemRange(f.priority, "jobs")) })
		f.corrupt = true // the counters and ("m") keys are wrong

		again := f.apply(opPushOnce(q, "", "k"))[0]
		f.wantDuplicate("after the recipe's pop", again, nil)
		f.wantDuplicate("again", f.apply(opPushOnce(q, "", "k"))[0], &again.Item.ID)
	})
}

// A queue with message ids stays listed until their window is over, and then leaves with them.
func TestRetireWithMsgIDs(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		f.configure(q, func(s *fdbpq.Settings) { s.DuplicateWindow = time.Hour })
		f.applyAt(now.Add(-time.Hour+time.Minute), opPushOnce(q, "a", "")) // known for a minute
		f.configure(q, func(s *fdbpq.Settings) { s.DuplicateWindow = 0 })
		f.apply(op(opPopMin, q))
		f.retire("in the window", []fdbpq.Target{q}, fdbpq.NewMark(), "", fdbpq.InUse)

		// Another one that is over already takes the place of the first.
		f.applyAt(now.Add(-time.Hour), opPushOnce(q, "b", ""), op(opPopMin, q))
		write(f, func(tx kv.Transaction) {
			for _, pair := range f.stored(f.priority) {
				if slices.Contains([]string{"d", "e"}, kindOf(f, pair.Key)) &&
					strings.Contains(string(pair.Key), "\x01a\x00") {
					tx.Clear(pair.Key)
				}
			}
		})

		mark := fdbpq.NewMark()
		f.retire("after the window", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.retire("later", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)

		wantEqual(f.T, "keys", len(f.stored(f.priority)), 0)
	})
}

// kindOf returns the kind of a key of the queue "jobs".
func kindOf(f *fixture, key []byte) string {
	kind, _, _ := strings.Cut(string(key[len(items(f.priority, "jobs").Bytes())-2:]), "\x00")
	return kind
}

// A push of unknown outcome puts its item into the queue once, and a repeated push says so.
func TestUnknownPushOnce(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			q := f.queue("jobs")
			f.faults.Next(fault, faultkv.None, fault)
			results := f.apply(opPushOnce(q, "a", "b"), opPushOnce(q, "a", ""),
				opPushOnce(q, "", "b"))
			first := &results[0].Item.ID

			f.wantDuplicate("first", results[0], nil)
			f.wantDuplicate("message id", results[1], first)
			f.wantDuplicate("unique key", results[2], first)

			f.calm()
			f.wantDuplicate("again", f.apply(opPushOnce(q, "a", ""))[0], first)
			f.wantDuplicate("again", f.apply(opPushOnce(q, "", "b"))[0], first)
			wantEqual(t, "items", f.length(q), 1)
		})
	}
}

// An item that returns to the queue, or that a schedule pushes, conflicts with an earlier push of
// its unique key, and with no other push.
func TestUniqueKeysConflict(t *testing.T) {
	for _, key := range []string{"schedule:s", "other"} {
		f := onMem(t)
		q := f.queue("jobs")
		before := time.Now().Add(-time.Hour)
		push := func() { wantError(t, f.one(before, opPushOnce(q, "", key)).Err, nil) }

		f.apply(opPushOnce(q, "", "schedule:s"))
		popped := f.apply(op(opPopMin, q))[0].Item
		f.wantConflict(key != "other", push, opRestore(q, popped))

		f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})

		s := schedule.Schedule{ID: "s", Every: minutely, Overlap: schedule.Skip}
		f.setSchedule(q, s, before)
		f.wantConflict(key != "other", push, op(opLen, q))
	}
}

// Of concurrent pushes of one id or key through several Batchers, exactly one is done, and all
// others return its id.
func TestConcurrentDuplicates(t *testing.T) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) {
			f := newFixture(t, e.open(t), fdbpq.RawValues)
			q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
			const batchers, rounds = 6, 25

			type answer struct {
				what string
				fdbpq.Result
			}

			answers := make([][]answer, batchers)
			var done sync.WaitGroup

			for b := range batchers {
				done.Go(func() {
					batcher := fdbpq.NewBatcher(f.db, f.Keyspace)
					for n := range rounds {
						id := fmt.Sprint(n)
						ops := []fdbpq.Op{
							opPushOnce(q, id, ""), opPushOnce(q, "", id),
							opPushOnce(fifo, id, "k"+id), opPushOnce(q, "", ""),
						}

						results, err := batcher.Apply(f.ctx, ops)
						if err != nil {
							t.Error(err)
							return
						}

						for i, r := range results[:3] {
							answers[b] = append(answers[b], answer{fmt.Sprint(i, "/", n), r})
						}
					}
				})
			}

			done.Wait()
			first, pushed := map[string]fdbpq.ID{}, map[string]int{}

			for _, a := range slices.Concat(answers...) {
				if id, seen := first[a.what]; seen && id != a.Item.ID || a.Err != nil {
					t.Errorf("%s: pushed %v and %v, %v", a.what, id, a.Item.ID, a.Err)
				}

				first[a.what] = a.Item.ID
				if !a.Duplicate {
					pushed[a.what]++
				}
			}

			for what, n := range pushed {
				if n != 1 {
					t.Errorf("%s was pushed %d times", what, n)
				}
			}
			// The push without an id or key is no duplicate.
			wantEqual(t, "pushed", len(pushed), 3*rounds)
			wantEqual(t, "priority items", f.length(q), (2+batchers)*rounds)
			wantEqual(t, "FIFO items", f.length(fifo), rounds)
		})
	}
}

// A push does not duplicate an item that was discarded in its own transaction for an earlier push.
// The duplicates of a chain are judged before it discards anything.
func TestUniqueKeysOfDiscardedItems(t *testing.T) {
	push := func(q fdbpq.Target, priority int64, unique string) fdbpq.Op {
		op := opPush(q, priority, fmt.Sprint(priority, unique))
		op.Message.Unique = unique
		return op
	}

	onEngines(t, func(f *fixture) {
		for name, chained := range map[string]bool{"one": false, "chain": true} {
			q := f.queue(name)
			f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.Discard = 2, fdbpq.DiscardOld })
			f.apply(push(q, 9, "k"), push(q, 1, ""))

			// The first push takes the place of the item that has the key. Alone, the second finds
			// no room: the first is not served after it, and stays.
			list := []fdbpq.Op{push(q, 5, ""), push(q, 5, "k")}
			list[1].Follows = chained
			results := f.apply(list...)
			wantError(t, results[0].Err, nil)
			if chained {
				wantError(t, results[1].Err, nil)
			} else {
				wantError(t, results[1].Err, fdbpq.ErrFull)
			}
			wantEqual(t, "duplicate", results[1].Duplicate, chained)

			again := f.apply(push(q, 0, "k"))[0] // in the place of the first push
			wantError(t, again.Err, nil)
			wantEqual(t, "duplicate", again.Duplicate, false)
		}
	})
}
