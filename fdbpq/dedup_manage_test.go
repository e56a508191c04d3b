package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// keyed is an item with a message id and a unique key, in some state.
type keyed struct {
	name   string
	push   fdbpq.Op // besides the keys
	lease  bool     // the item is leased
	put    bool     // and given back, after the delay
	delay  time.Duration
	ending time.Duration // after which the item has expired
}

// keyedStates are items in all states, that expire and that do not.
var keyedStates = []keyed{
	{name: "ready"},
	{name: "ready, expires", push: fdbpq.Op{TTL: time.Minute}, ending: time.Minute},
	{name: "given back, expires", push: fdbpq.Op{TTL: time.Minute}, lease: true, put: true, ending: time.Minute},
	{name: "leased", lease: true},
	{name: "leased, expires", push: fdbpq.Op{TTL: time.Minute}, lease: true, ending: time.Hour},
	{name: "delayed push", push: fdbpq.Op{Delay: 2 * time.Hour}},
	{name: "delayed push, expires", push: fdbpq.Op{Delay: 2 * time.Hour, TTL: time.Minute}, ending: time.Minute},
	{name: "held back", lease: true, put: true, delay: 2 * time.Hour},
	{name: "held back, expires", push: fdbpq.Op{TTL: time.Minute}, lease: true, put: true, delay: 2 * time.Hour, ending: time.Minute},
	{name: "ready and large", push: fdbpq.Op{Message: fdbpq.Message{Value: make([]byte, 300_000)}, TTL: time.Minute}, ending: time.Minute},
}

// fill puts the item into its state, and returns its id.
func (k *keyed) fill(f *fixture, q fdbpq.Target) fdbpq.ID {
	f.Helper()
	push := k.push
	push.Kind, push.Queue, push.Message.MsgID, push.Message.Unique = fdbpq.OpPush, q, "m", "k"
	pushed := f.apply(push)[0]
	f.wantDuplicate("first push", pushed, nil)
	if k.lease {
		leased := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})[0]
		wantEqual(f.T, "leased item", leased.Item.ID, pushed.Item.ID)
		if k.put {
			wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leased.Lease.Token, Delay: k.delay})[0].Err, nil)
		}
	}
	f.check()
	return pushed.Item.ID
}

// onKeyed runs a test on each state, of both kinds of queues.
func onKeyed(t *testing.T, run func(f *fixture, clock *clock, q fdbpq.Target, k *keyed, id fdbpq.ID)) {
	for i := range keyedStates {
		k := &keyedStates[i]
		t.Run(k.name, func(t *testing.T) {
			onMemAndPebble(t, func(f *fixture) {
				for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
					clock := newClock(time.Now())
					f.batcher.SetNow(clock.now)
					run(f, clock, q, k, k.fill(f, q))
					f.check()
				}
			})
		})
	}
}

// A duplicate is answered with the first's id, whatever state that is in, and has no next due time.
func TestDuplicateOfEachState(t *testing.T) {
	onKeyed(t, func(f *fixture, _ *clock, q fdbpq.Target, _ *keyed, id fdbpq.ID) {
		for _, again := range []fdbpq.Op{opPushOnce(q, "m", ""), opPushOnce(q, "", "k")} {
			again.Delay = time.Second
			r := f.apply(again)[0]
			f.wantDuplicate("again", r, &id)
			wantEqual(f.T, "next due", r.NextDue, time.Time{})
		}
	})
}

// A unique key is free once its item is removed, purged or has expired.
func TestUniqueFreed(t *testing.T) {
	for name, free := range map[string]func(f *fixture, clock *clock, q fdbpq.Target, k *keyed, id fdbpq.ID){
		"remove": func(f *fixture, _ *clock, q fdbpq.Target, _ *keyed, id fdbpq.ID) {
			wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id})[0].Err, nil)
			f.check()
		},
		"purge": func(f *fixture, clock *clock, q fdbpq.Target, _ *keyed, _ fdbpq.ID) {
			n, _ := f.sweep(clock.now(), fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
			wantEqual(f.T, "purged", n, 1)
			f.check()
		},
		"expiry": func(f *fixture, clock *clock, q fdbpq.Target, k *keyed, _ fdbpq.ID) {
			if k.ending == 0 {
				wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})[0].Err, nil)
				return
			}
			clock.advance(k.ending)
			f.apply(op(opLen, q)) // removes what has expired
			f.apply(op(opPeekMin, q))
			f.check()
		},
		"push after expiry": func(_ *fixture, clock *clock, _ fdbpq.Target, k *keyed, _ fdbpq.ID) {
			clock.advance(k.ending)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onKeyed(t, func(f *fixture, clock *clock, q fdbpq.Target, k *keyed, id fdbpq.ID) {
				free(f, clock, q, k, id)
				again := f.apply(opPushOnce(q, "", "k"))[0]
				if name == "push after expiry" && k.ending == 0 {
					f.wantDuplicate("it has not expired", again, &id)
					return
				}
				f.wantDuplicate("pushed again", again, nil)
				f.wantDuplicate("and again", f.apply(opPushOnce(q, "", "k"))[0], &again.Item.ID)
			})
		})
	}
}

// A moved item keeps its message id and unique key, which name its new id.
func TestMoveWithKeys(t *testing.T) {
	onKeyed(t, func(f *fixture, clock *clock, q fdbpq.Target, k *keyed, id fdbpq.ID) {
		if _, fifo := q.(*fdbpq.Queue); fifo || k.lease && !k.put {
			return // neither can be moved
		}
		moved := f.apply(fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: id, Priority: 7})[0]
		wantError(f.T, moved.Err, nil)
		f.check()
		f.wantDuplicate("message id", f.apply(opPushOnce(q, "m", ""))[0], &moved.Item.ID)
		f.wantDuplicate("unique key", f.apply(opPushOnce(q, "", "k"))[0], &moved.Item.ID)
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: moved.Item.ID})[0].Err, nil)
		f.wantDuplicate("removed", f.apply(opPushOnce(q, "", "k"))[0], nil)
		f.wantDuplicate("message id of what was removed", f.apply(opPushOnce(q, "m", ""))[0], &moved.Item.ID)
		clock.advance(fdbpq.DefaultDuplicateWindow)
		f.wantDuplicate("after the window of the first push", f.apply(opPushOnce(q, "m", ""))[0], nil)
	})
}

// Duplicates take no place in a queue with a limit, not even those in the same group.
func TestMaxItemsAndDuplicates(t *testing.T) {
	onMemAndPebble(t, func(f *fixture) {
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 2 })
		first := f.apply(opPushOnce(q, "a", ""))[0]
		group := []fdbpq.Op{opPushOnce(q, "a", ""), opPushOnce(q, "", "k"), opPushOnce(q, "", "k")}
		group[1].Follows, group[2].Follows = true, true
		results := f.apply(group...)
		f.wantDuplicate("before the group", results[0], &first.Item.ID)
		f.wantDuplicate("new", results[1], nil)
		f.wantDuplicate("in the group", results[2], &results[1].Item.ID)
		wantError(f.T, f.apply(opPushOnce(q, "b", ""))[0].Err, fdbpq.ErrFull)
		f.wantDuplicate("full", f.apply(opPushOnce(q, "a", ""))[0], &first.Item.ID)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 1 })
		f.wantDuplicate("over the limit", f.apply(opPushOnce(q, "", "k"))[0], &results[1].Item.ID)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 3 })
		// A group without room leaves nothing behind for the next push.
		pair := []fdbpq.Op{opPushOnce(q, "c", ""), opPushOnce(q, "d", ""), opPushOnce(q, "c", "")}
		pair[1].Follows = true
		results = f.apply(pair...)
		wantError(f.T, results[0].Err, fdbpq.ErrFull)
		f.wantDuplicate("after the group", results[2], nil)
		f.check()
	})
}
