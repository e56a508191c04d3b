package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// opPushOnce is a push with a message id and a unique key.
func opPushOnce(q fdbpq.Target, msgID, unique string) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: fdbpq.Message{Value: []byte("v"), MsgID: msgID, Unique: unique}}
}

// wantDuplicate checks that a push is a duplicate of the given item, or none.
func (f *fixture) wantDuplicate(what string, result fdbpq.Result, of *fdbpq.ID) {
	f.Helper()
	if result.Err != nil || result.Duplicate != (of != nil) || of != nil && result.Item.ID != *of {
		f.Errorf("%s: %+v, %v; want a duplicate of %v", what, result.Item.ID, result.Err, of)
	}
}

// A message id counts for the window that was in force when it was pushed first, whatever becomes of the
// item, and in its own queue.
func TestMsgID(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			push := func(msgID string) fdbpq.Result { f.Helper(); return f.apply(opPushOnce(q, msgID, ""))[0] }
			first := push("a")
			f.wantDuplicate("first", first, nil)
			f.wantDuplicate("again", push("a"), &first.Item.ID)
			f.wantDuplicate("other id", push("b"), nil)
			f.wantDuplicate("other queue", f.apply(opPushOnce(f.queue("other"), "a"+fmt.Sprintf("%T", q), ""))[0], nil)
			item := f.apply(op(opPopMin, q))[0].Item
			wantEqual(f.T, "message id of the item", item.MsgID, "a")
			clock.advance(fdbpq.DefaultDuplicateWindow - time.Microsecond)
			again := push("a")
			f.wantDuplicate("after the pop, at the end of the window", again, &first.Item.ID)
			wantEqual(f.T, "time of the first push", again.Item.PushedAt, first.Item.PushedAt)
			clock.advance(time.Microsecond)
			f.wantDuplicate("after the window", push("a"), nil)

			f.configure(q, func(s *fdbpq.Settings) { s.DuplicateWindow = time.Second })
			c := push("c")
			f.configure(q, func(s *fdbpq.Settings) { s.DuplicateWindow = fdbpq.NoDuplicateWindow })
			f.wantDuplicate("window changed", push("c"), &c.Item.ID)
			clock.advance(time.Second)
			f.wantDuplicate("after the first's window", push("c"), nil)
			f.wantDuplicate("without a window", push("c"), nil)
			f.check()
		}
	})
}

// Of pushes in one transaction the later is a duplicate of the earlier, unless that failed.
func TestDuplicatesInOneBatch(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		large := opPushOnce(q, "x", "k")
		large.Message.Value = make([]byte, fdbpq.MaxMessageSize+1)
		results := f.apply(large, opPushOnce(q, "x", "k"), opPushOnce(q, "x", ""), opPushOnce(q, "y", "k"), opPushOnce(q, "y", ""))
		wantError(f.T, results[0].Err, fdbpq.ErrMessageTooLarge)
		first := &results[1].Item.ID
		f.wantDuplicate("first that works", results[1], nil)
		f.wantDuplicate("same message id", results[2], first)
		f.wantDuplicate("same unique key", results[3], first)
		f.wantDuplicate("message id of a duplicate", results[4], nil)
		both := f.apply(opPushOnce(q, "y", "k"))[0]
		f.wantDuplicate("both, of different items", both, &results[4].Item.ID)
		wantEqual(f.T, "items", f.length(q), 2)
	})
}

// Keys that are too long are refused, and nothing is pushed of their group.
func TestLongKeys(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	ok, long := strings.Repeat("\x00", fdbpq.MaxKey), strings.Repeat("x", fdbpq.MaxKey+1)
	for _, bad := range []fdbpq.Op{opPushOnce(q, long, ""), opPushOnce(q, "", long)} {
		bad.Follows = true
		results := f.apply(opPushOnce(q, "", ""), bad)
		wantError(t, results[0].Err, fdbpq.ErrOp)
		wantError(t, results[1].Err, fdbpq.ErrOp)
	}
	wantEqual(t, "items", f.length(q), 0)
	first := f.apply(opPushOnce(q, ok, ok))[0]
	f.wantDuplicate("longest", f.apply(opPushOnce(q, ok, ""))[0], &first.Item.ID)
	f.wantDuplicate("longest", f.apply(opPushOnce(q, "", ok))[0], &first.Item.ID)
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
	wantEqual(t, "keys", r.Item.MsgID+r.Item.Unique, ok+ok)
	f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token, Reason: strings.Repeat("\x01", 2000)})
	f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
}

// A unique key is taken while its item is in the queue, and free afterwards, however it left.
func TestUnique(t *testing.T) {
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}
	token := func(kind fdbpq.OpKind) fdbpq.Op { return fdbpq.Op{Kind: kind} }
	delayed := fdbpq.Op{Kind: fdbpq.OpNak, Delay: time.Minute}
	const hour = fdbpq.OpKind(255) // passes
	past := fdbpq.Op{Kind: hour}
	for name, test := range map[string]struct {
		steps []fdbpq.Op
		free  bool
	}{
		"ready":                     {nil, false},
		"popped":                    {[]fdbpq.Op{opPopMin}, true},
		"leased":                    {[]fdbpq.Op{lease}, false},
		"acknowledged":              {[]fdbpq.Op{lease, token(fdbpq.OpAck)}, true},
		"extended":                  {[]fdbpq.Op{lease, token(fdbpq.OpExtend)}, false},
		"given back":                {[]fdbpq.Op{lease, token(fdbpq.OpNak)}, false},
		"delayed":                   {[]fdbpq.Op{lease, delayed}, false},
		"given back and popped":     {[]fdbpq.Op{lease, token(fdbpq.OpNak), opPopMin}, true},
		"delayed and acknowledged":  {[]fdbpq.Op{lease, delayed, past, opPeekMin, lease, token(fdbpq.OpAck)}, true},
		"lease over":                {[]fdbpq.Op{lease, past}, false},
		"lease over, brought back":  {[]fdbpq.Op{lease, past, opPeekMin}, false},
		"lease over, acknowledged":  {[]fdbpq.Op{lease, past, opPeekMin, token(fdbpq.OpAck)}, true},
		"lease over, then extended": {[]fdbpq.Op{lease, past, opPeekMin, token(fdbpq.OpExtend), token(fdbpq.OpAck)}, true},
		"given up":                  {[]fdbpq.Op{lease, token(fdbpq.OpTerm)}, true},
		"died":                      {[]fdbpq.Op{lease, past, lease, past}, true},
		"died of a nak":             {[]fdbpq.Op{lease, past, lease, delayed}, true},
	} {
		t.Run(name, func(t *testing.T) {
			onMemAndPebble(t, func(f *fixture) {
				for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
					f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 2 })
					clock := newClock(time.Now())
					f.batcher.SetNow(clock.now)
					first := f.apply(opPushOnce(q, "", "k"))[0]
					var held fdbpq.Token
					for i, step := range test.steps {
						if step.Kind == hour {
							clock.advance(time.Hour)
							continue
						}
						step.Queue, step.Token = q, held
						r := f.apply(step)[0]
						if r.Err != nil {
							f.Fatalf("step %d: %v", i, r.Err)
						}
						if r.Lease.Token != (fdbpq.Token{}) {
							held = r.Lease.Token
						}
					}
					if test.free {
						f.apply(op(opPeekMin, q)) // brings back what is due
						f.check()                 // finds a key that was left
					}
					again := f.apply(opPushOnce(q, "", "k"))[0]
					if test.free {
						f.wantDuplicate("free", again, nil)
						f.wantDuplicate("taken again", f.apply(opPushOnce(q, "", "k"))[0], &again.Item.ID)
					} else {
						f.wantDuplicate("taken", again, &first.Item.ID)
					}
					f.check()
				}
			})
		})
	}
}

func onMemAndPebble(t *testing.T, run func(f *fixture)) {
	for _, e := range engines()[:2] {
		run(newFixture(t, e.open(t), fdbpq.RawValues))
	}
}

// Dead letters have neither message id nor unique key.
func TestDeadLettersHaveNoKeys(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.apply(opPushOnce(q, "id", "key"))
		token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
		f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token})
		f.wantDuplicate("in the dead-letter queue", f.apply(opPushOnce(q.DeadLetters(), "id", "key"))[0], nil)
		item, err := f.take(q.DeadLetters().PopMin)
		if err != nil || item.DeadLetter == nil || item.MsgID+item.Unique != "" {
			f.Errorf("%+v, %v", item, err)
		}
	})
}

// A program with the bare recipe takes items and leaves their keys, which then mean nothing.
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

// An item that nobody received gets its key back, unless another item has it by then.
func TestRestoreOfUnique(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		first := f.apply(opPushOnce(q, "", "k"))[0]
		token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
		f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: token}) // it has a history
		a := f.apply(op(opPopMin, q))[0].Item
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &a})[0].Err, nil)
		f.wantDuplicate("restored", f.apply(opPushOnce(q, "", "k"))[0], &first.Item.ID)
		a = f.apply(op(opPopMin, q))[0].Item
		b := f.apply(opPushOnce(q, "", "k"), op(opPopMin, q))[1].Item
		results := f.apply(fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &b}, fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &a})
		wantError(f.T, errors.Join(results[0].Err, results[1].Err), nil)
		f.wantDuplicate("both restored", f.apply(opPushOnce(q, "", "k"))[0], &b.ID)
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
		if r.Item.ID != a.ID || r.Item.Unique != "" || r.Lease.Deliveries != 2 {
			f.Errorf("leased %+v, want %v without its key", r, a.ID)
		}
		f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: r.Lease.Token})
		f.wantDuplicate("the other is there", f.apply(opPushOnce(q, "", "k"))[0], &b.ID)
	})
}

// A queue with message ids stays listed until they are over, and then leaves with them.
func TestRetireWithMsgIDs(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		f.configure(q, func(s *fdbpq.Settings) { s.DuplicateWindow = time.Hour })
		f.applyAt(now.Add(-time.Hour+time.Minute), opPushOnce(q, "a", ""))
		f.configure(q, func(s *fdbpq.Settings) { s.DuplicateWindow = 0 })
		f.apply(op(opPopMin, q))
		f.retire("in the window", []fdbpq.Target{q}, fdbpq.NewMark(), "", fdbpq.InUse)
		f.applyAt(now.Add(-time.Hour), opPushOnce(q, "b", ""), op(opPopMin, q))
		write(f, func(tx kv.Transaction) { // the first one is over
			for _, pair := range f.stored(f.priority) {
				if slices.Contains([]string{"d", "e"}, kindOf(f, pair.Key)) && strings.Contains(string(pair.Key), "\x01a\x00") {
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

// Only pushes of the same id or key conflict.
func TestDuplicateConflicts(t *testing.T) {
	for name, test := range map[string]struct {
		first, second fdbpq.Message
		want          bool
	}{
		"same message id":   {fdbpq.Message{MsgID: "a"}, fdbpq.Message{MsgID: "a", Unique: "x"}, true},
		"same unique key":   {fdbpq.Message{Unique: "a"}, fdbpq.Message{Unique: "a", MsgID: "x"}, true},
		"other message id":  {fdbpq.Message{MsgID: "a"}, fdbpq.Message{MsgID: "b"}, false},
		"other unique key":  {fdbpq.Message{Unique: "a"}, fdbpq.Message{Unique: "b"}, false},
		"message id, plain": {fdbpq.Message{MsgID: "a"}, fdbpq.Message{}, false},
		"id and key":        {fdbpq.Message{MsgID: "a"}, fdbpq.Message{Unique: "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("jobs")
			old := time.Now().Add(-time.Hour)
			for i := range 10 { // that both remove
				f.applyAt(old, opPushOnce(q, fmt.Sprint("old", i), ""))
			}
			tx, err := f.db.Begin(f.ctx, kv.BeginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fdbpq.Apply(tx, []fdbpq.Op{{Kind: fdbpq.OpPush, Queue: q, Message: test.first}}, time.Now()); err != nil {
				t.Fatal(err)
			}
			f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: test.second})
			if _, err := tx.Commit().Get(); (err != nil) != test.want {
				t.Errorf("commit: %v, want a conflict: %t", err, test.want)
			}
		})
	}
}

// Of concurrent pushes of one id or key through several Batchers, exactly one is done, and all others have
// its id.
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
						ops := []fdbpq.Op{opPushOnce(q, id, ""), opPushOnce(q, "", id), opPushOnce(fifo, id, "k"+id), opPushOnce(q, "", "")}
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
			wantEqual(t, "pushed", len(pushed), 3*rounds)
			wantEqual(t, "priority items", f.length(q), (2+batchers)*rounds)
			wantEqual(t, "FIFO items", f.length(fifo), rounds)
		})
	}
}

// Whatever becomes of the commit of a push, the item is in the queue once, and both this push and a repeated
// one say so.
func TestUnknownPushOnce(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			q := f.queue("jobs")
			f.faults.Next(fault, faultkv.None, fault)
			results := f.apply(opPushOnce(q, "a", "b"), opPushOnce(q, "a", ""), opPushOnce(q, "", "b"))
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
