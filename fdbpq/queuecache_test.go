package fdbpq_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Pops and leases of a queue that the Batcher knows read nothing, as long as it knows the items.
func TestKnownFacts(t *testing.T) {
	f, store := onlyWay(t)
	q := f.queue("a")

	reads := func(ops ...fdbpq.Op) int {
		store.Take()
		f.apply(ops...)
		return store.Take()[0].Reads
	}

	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "x")}, 20)...)
	f.apply(pop)

	// The first pop has read 16 items.
	wantEqual(t, "reads of a pop", reads(pop), 0)
	wantEqual(t, "reads of a lease", reads(lease), 0)
	wantEqual(t, "reads of a lease that counts", reads(counting(lease)), 1) // how many are ready

	token := f.apply(lease)[0].Lease.Token
	ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}
	wantEqual(t, "reads of an acknowledgement", reads(ack), 0)
	wantEqual(t, "reads of 11 pops", reads(slices.Repeat([]fdbpq.Op{pop}, 11)...), 0)
	wantEqual(t, "reads of the pop after them", reads(pop), 1) // the rest of the items

	// All items are known, also from the back, with those that come new.
	pop.End = fdbpq.Back
	f.apply(opPush(q, 2, "new"))
	store.Take()
	wantEqual(t, "the last item", string(f.apply(pop)[0].Item.Value), "new")
	wantEqual(t, "reads of a pop from the back", store.Take()[0].Reads, 0)
	pop.End = fdbpq.Front

	write(f, func(kv.Transaction) {})

	// Settings, histories, due entries twice, and the items.
	wantEqual(t, "reads of a pop after a transaction of somebody else", reads(pop), 5)
}

// An item that comes back right behind those that are known is served once.
func TestKnownItemsEnd(t *testing.T) {
	f, _ := onlyWay(t)
	q := f.queue("a")
	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}
	wantError(t, f.apply(pop)[0].Err, fdbpq.ErrEmpty) // so everything is known
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "x")}, 65)...)

	// Only the first 32 of so many stay known. The last that is taken here is the next one.
	back := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.Back, Lease: time.Minute}
	leases := f.apply(slices.Repeat([]fdbpq.Op{back}, 33)...)
	f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[32].Lease.Token})

	ids := map[fdbpq.ID]bool{}
	for n, r := range f.apply(slices.Repeat([]fdbpq.Op{pop}, 34)...) {
		if n < 33 && r.Err == nil {
			ids[r.Item.ID] = true
		} else if n < 33 || !errors.Is(r.Err, fdbpq.ErrEmpty) {
			t.Errorf("pop %d: %v", n, r.Err)
		}
	}
	wantEqual(t, "items", len(ids), 33)
}

// Each lease is acknowledged once, whether or not there was room to remember it.
func TestKnownLeases(t *testing.T) {
	f, _ := onlyWay(t)
	q := f.queue("a")
	var tokens []fdbpq.Token

	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}
	for range 60 { // more than 5 MB
		f.apply(opPush(q, 1, strings.Repeat("x", 90_000)))
		tokens = append(tokens, f.apply(lease)[0].Lease.Token)
	}

	for i, token := range tokens {
		if i%2 == 0 {
			extend := fdbpq.Op{Kind: fdbpq.OpExtend, Queue: q, Token: token, Lease: time.Hour}
			wantError(t, f.apply(extend)[0].Err, nil)
		}

		ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}
		wantError(t, f.apply(ack)[0].Err, nil)
		wantError(t, f.apply(ack)[0].Err, fdbpq.ErrLeaseLost)
	}
}

// An entry for the present microsecond is due, even if its time had a fraction more.
func TestKnownDueWithinMicrosecond(t *testing.T) {
	f, _ := onlyWay(t)
	q, now := f.queue("a"), time.Now().Truncate(time.Microsecond).Add(500*time.Nanosecond)
	f.batcher.SetNow(func() time.Time { return now })
	f.apply(opPush(q, 1, "x"))
	now = f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})[0].Lease.Until

	// It could not learn of a NextDue either: that is of entries that are not due.
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, Waits: true})[0].Err, nil)
}

// onlyWay returns a store that only its Database can change, and counts its reads.
func onlyWay(t *testing.T) (*fixture, *countkv.DB) {
	store := countkv.New(openPebble(t, vfs.NewMem()))
	return newFixture(t, store, fdbpq.RawValues), store
}

// Batches that push to a priority again do not read its last items again.
func TestKnownCounts(t *testing.T) {
	f, store := onlyWay(t)
	q := f.queue("a")
	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}

	push := func() int {
		store.Take()
		f.apply(opPush(q, 1, "x"), opPush(q, 2, "y"))
		return store.Take()[0].Reads
	}

	f.apply(opPush(q, 3, ""))
	first := push()
	wantEqual(t, "reads saved by the second", first-push(), 4)

	f.apply(pop)
	wantEqual(t, "reads saved after a pop", first-push(), 4)

	write(f, func(kv.Transaction) {})

	// Its settings, which the first knew, are one more read.
	wantEqual(t, "reads saved after a transaction of somebody else", first-push(), -1)
}

// A push comes behind items of staged pops that come back, although no Batcher knows their counts.
func TestKnownCountsAndStagedItems(t *testing.T) {
	f, _ := onlyWay(t)
	q, clock := f.queue("a"), newClock(time.Now())
	f.batcher.SetNow(clock.now)
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "staged")}, 5)...)
	f.leave(q, clock.now(), slices.Repeat([]fdbpq.End{fdbpq.Front}, 5)...)
	f.apply(opPush(q, 1, "between"))
	clock.advance(time.Hour)
	f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}) // brings them back
	f.apply(opPush(q, 1, "new"))
	clock.advance(time.Hour)

	const all = 5 + 1 + 1
	popped := f.apply(slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, all)...)
	wantEqual(t, "last", string(popped[all-1].Item.Value), "new")
}

// A push comes behind items that were restored, also those of the batch with the push before.
func TestKnownCountsAndRestoredItems(t *testing.T) {
	f, _ := onlyWay(t)
	q := f.queue("a")
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "restored")}, 5)...)
	popped := f.apply(slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, 5)...)
	write(f, func(kv.Transaction) {}) // so the counts have to be read

	restore := fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &popped[4].Item}
	f.apply(opPush(q, 1, "between"), restore)
	f.apply(opPush(q, 1, "new"))

	popped = f.apply(slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, 3)...)
	wantEqual(t, "last", string(popped[2].Item.Value), "new")
}

// Pushes with a group get the counts that they would get if the Batcher knew nothing, whatever it
// has done before.
func TestKnownTurns(t *testing.T) {
	f, store := onlyWay(t)
	random, _ := newRandom(t)
	r := newModelRun(f, random, false, map[string]int{})
	weights := map[string]int{"a": 1, "b": 2, "c\x00": 3}
	groups := slices.Sorted(maps.Keys(weights))

	compared, known := 0, 0
	rounds, least := harness.Times(100, 600), harness.Times(8, 50)

	for n := 0; n < rounds || n < 10*rounds && min(compared, known) < least; n++ { // seeds differ
		r.pass()
		batch := r.batch(true)

		for n := range batch {
			ops := slices.DeleteFunc(batch[n].ops,
				func(op fdbpq.Op) bool { return op.Kind == fdbpq.OpRestore })
			for i := range ops {
				ops[i].Weight = weights[ops[i].Message.Group()]
			}

			batch[n].ops = ops
		}

		r.applyBy(r.main, batch)
		r.findAllArrived()

		q := batch[0].q
		push := inGroup(r.on(q, r.push(q))[0], groups[random.IntN(3)])
		push.Message.Unique, push.Message.MsgID, push.Weight = "", "", weights[push.Message.Group()]
		ops := []fdbpq.Op{push}
		if random.IntN(3) == 0 { // which then is not blind
			ops = append(ops, op(opPopMin, q.target))
		}
		want := f.applyToCopy(ops, r.m.now)[0]
		busy := slices.ContainsFunc(q.inOrder(isReady),
			func(i *modelItem) bool { return q.fifo || i.ID.Priority == push.Priority })
		// If the last item of the group expires now, its place may count or not.
		expires, stay := false, codec.TurnItem{}
		for _, i := range q.items {
			at, turn := i.Message.Expires, codec.TurnItemOf(&i.ID)
			switch {
			case i.Message.Group() != push.Message.Group(),
				!q.fifo && i.ID.Priority != push.Priority: // it has another turn
			case !at.IsZero() && !at.After(r.m.now):
				expires = true
			case turn.Compare(stay) > 0:
				stay = turn
			}
		}
		store.Take()
		got := must(r.main.Apply(f.ctx, ops))

		if store.Take()[0].Reads <= 3 { // what is being served, and the list of queues
			known++
		}

		// Otherwise the next count matters, and a known one may be too high.
		if busy && want.Err == nil && got[0].Err == nil {
			compared++
			a, b := codec.TurnItemOf(&got[0].Item.ID), codec.TurnItemOf(&want.Item.ID)
			sameTime := got[0].Item.PushedAt.Equal(want.Item.PushedAt)
			if a != b && !expires || a.Compare(stay) <= 0 || !sameTime {
				t.Fatalf("%s of %q: got %+v at %v, want %+v at %v",
					q.name, push.Message.Group(), a, got[0].Item.PushedAt, b, want.Item.PushedAt)
			}
		}
		r.compare([]modelPart{{q, ops}}, got, nil, 0)

		r.findAllArrived()
	}
	if compared < least || known < least {
		t.Errorf("compared %d, and little was read for %d", compared, known)
	}
}

// Items that leave in the transaction of a push do not change its place, even if they were the last
// of their group: a Batcher that knows nothing cannot tell.
func TestKnownTurnsOfLeavingItems(t *testing.T) {
	for name, c := range map[string]struct {
		settings fdbpq.Settings
		unique   string
		wait     time.Duration // the items expire after a minute
	}{
		"full":    {settings: fdbpq.Settings{MaxItems: 5}, wait: time.Hour},
		"unique":  {unique: "u", wait: time.Hour},
		"discard": {settings: fdbpq.Settings{MaxItems: 5, Discard: fdbpq.DiscardOld}},
	} {
		f, _ := onlyWay(t)
		q, clock := f.fifoQueue(name), newClock(time.Now())
		f.batcher.SetNow(clock.now)
		f.configure(q, func(s *fdbpq.Settings) { *s = c.settings })
		push, other := inGroup(opPush(q, 0, "x"), "a"), opPush(q, 0, "other")
		f.apply(append(slices.Repeat([]fdbpq.Op{withTTL(push, time.Minute)}, 3), other)...)

		// With a pop the batch is not blind, so it begins with what the Batcher knows.
		clock.advance(c.wait)
		push.Message.Unique = c.unique
		ops := []fdbpq.Op{other, other, other, push, op(opPopMin, q)}
		want := f.applyToCopy(ops, clock.now())[3]
		got := f.apply(ops...)[3]
		wantError(t, got.Err, nil)
		wantEqual(t, name, codec.TurnItemOf(&got.Item.ID), codec.TurnItemOf(&want.Item.ID))
	}
}

// applyToCopy applies operations to a copy of the store, without a cache.
func (f *fixture) applyToCopy(ops []fdbpq.Op, now time.Time) []fdbpq.Result {
	f.Helper()
	tx := must(memkv.New(memkv.Options{}).Begin(f.ctx, kv.BeginOptions{}))
	defer tx.Cancel()

	for _, root := range []string{f.priority, f.priority + "-store", f.fifo} {
		for _, pair := range f.stored(root) {
			tx.Set(pair.Key, pair.Value)
		}
	}

	return must(fdbpq.Apply(tx, ops, now))
}

// A batch reads a few hundred groups at a time, however many it pushes, and only a Batcher's first
// batch reads the secret of the Keyspace.
func TestPushesOfManyGroups(t *testing.T) {
	store := countkv.New(memkv.New(memkv.Options{}))
	f := newFixture(t, store, fdbpq.RawValues)
	q := f.queue("q")
	var ops []fdbpq.Op

	for i := range 600 {
		ops = append(ops, inGroup(opPush(q, 1, "x"), fmt.Sprint(i)))
	}

	for want := range int64(3) {
		store.Take()
		results := f.apply(ops...)
		rounds := 3

		if want == 0 { // reads the secret first
			rounds++
		}
		wantEqual(t, "cost", store.Take()[0].Rounds, rounds)

		for _, r := range results {
			wantError(t, r.Err, nil)
			wantEqual(t, "count", r.Item.ID.Count, want)
		}
	}
}
