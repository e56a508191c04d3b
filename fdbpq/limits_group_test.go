package fdbpq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

func leaseOf(q fdbpq.Target, end fdbpq.End) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour, End: end, Waits: true}
}

// A group at its limit is passed over, from either end, however many of its items come first. Its
// place is free again as soon as a lease ends, and without the limit it is served like others.
func TestGroupAtItsLimit(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, many := range []int{2, 64, 65, 150} { // a search begins after 64
			f.limitGroup(f.queue(fmt.Sprint("q", many)), many)
		}
	})
}

// limitGroup is TestGroupAtItsLimit for a group with many items before and behind all others.
func (f *fixture) limitGroup(q fdbpq.Target, many int) {
	f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
	var ops []fdbpq.Op

	for i := range many + 1 {
		ops = append(ops, inGroup(opPush(q, 1, fmt.Sprint("a", i)), "a"))
	}

	ops = append(ops,
		inGroup(opPush(q, 2, "b0"), "b"), opPush(q, 2, "none"), inGroup(opPush(q, 3, "c0"), "c"),
		inGroup(opPush(q, 3, "b1"), "b"))
	for i := range many {
		ops = append(ops, inGroup(opPush(q, 4, fmt.Sprint("a-", i)), "a"))
	}

	f.apply(ops...)

	lease := func(end fdbpq.End, want string) fdbpq.Result {
		f.Helper()
		r := f.apply(leaseOf(q, end))[0]

		if r.Err != nil || string(r.Item.Value) != want {
			f.Errorf("%d: leased %q (error %v), want %q", many, r.Item.Value, r.Err, want)
		}

		return r
	}

	first := lease(fdbpq.Front, "a0")
	lease(fdbpq.Front, "b0")
	lease(fdbpq.Back, "c0") // of those of 3, b is at its limit, too

	peek := f.apply(op(opPeekMin, q))[0]
	wantEqual(f.T, "peeked, whatever the limits are", string(peek.Item.Value), "a1")

	lease(fdbpq.Front, "none")

	r := f.apply(leaseOf(q, fdbpq.Front))[0]
	var refused *fdbpq.GroupLimitsError

	const text = "fdbpq: nothing may be served now: the groups of the ready items have " +
		"max_leased_per_group 1 leased"
	if !errors.Is(r.Err, fdbpq.ErrEmpty) || !errors.As(r.Err, &refused) || r.NextDue.IsZero() ||
		r.Err.Error() != text {
		f.Errorf("%d: %v, next due %v", many, r.Err, r.NextDue)
	}

	// A pop takes no place, but passes over the same.
	wantError(f.T, f.apply(op(opPopMax, q))[0].Err, fdbpq.ErrGroupLimits)

	// +NXT: what the acknowledgement frees counts at once.
	ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: first.Lease.Token}
	results := f.apply(grouped(ack, leaseOf(q, fdbpq.Front))...)
	if !results[0].Freed || string(results[1].Item.Value) != "a1" {
		f.Errorf("%d: freed %t, then leased %q (error %v)", many, results[0].Freed,
			results[1].Item.Value, results[1].Err)
	}

	// A nak frees the place, too.
	next := results[1].Lease.Token
	nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: next}
	wantEqual(f.T, "freed by a nak", f.apply(nak)[0].Err, nil)
	wantEqual(f.T, "popped", string(f.apply(op(opPopMin, q))[0].Item.Value), "a1")

	f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 0 })
	lease(fdbpq.Front, "a2")
	lease(fdbpq.Back, fmt.Sprint("a-", many-1))

	f.check()

	f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
}

// A search finds items that are in no index.
func TestSearchAmongOtherItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 100, 1)
		f.apply(opPush(q, 2, "unindexed")) // pushed before there is a limit
		f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
		f.apply(inGroup(opPush(q, 3, "b1"), "b"), inGroup(opPush(q, 3, "b2"), "b"),
			opPush(q, 3, "indexed"))
		var taken []string

		for range 3 {
			r := f.apply(leaseOf(q, fdbpq.Front))[0]
			taken = append(taken, string(r.Item.Value))
		}
		wantList(t, "leased", taken, "a1", "unindexed", "b1")
	})
}

// takeAsRecipe removes the key of an item with a value, as a program with the bare recipe does.
func (f *fixture) takeAsRecipe(value string) {
	f.Helper()
	for _, pair := range f.stored(f.priority) {
		if must(tuple.Unpack(pair.Key))[2] == "i" && strings.Contains(string(pair.Value), value) {
			write(f, func(tx kv.Transaction) { tx.Clear(pair.Key) })
			return
		}
	}

	f.Fatalf("there is no %q", value)
}

// A batch that pops from both ends serves no item twice where the searches meet.
func TestSearchesMeet(t *testing.T) {
	for _, kind := range []fdbpq.OpKind{fdbpq.OpLease, fdbpq.OpPop} {
		f := onMem(t)
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })

		// Group a is at its limit, and has enough items at both ends for a search from each. Five
		// items of other groups are between them.
		for _, p := range []int64{1, 3} {
			for range 70 {
				f.apply(inGroup(opPush(q, p, "a"), "a"))
			}
		}

		for i := range 5 {
			f.apply(inGroup(opPush(q, 2, fmt.Sprint("b", i)), fmt.Sprint("b", i)))
		}

		f.apply(leaseOf(q, fdbpq.Front))
		var ops []fdbpq.Op

		for range 4 {
			ops = append(ops, fdbpq.Op{Kind: kind, Queue: q},
				fdbpq.Op{Kind: kind, Queue: q, End: fdbpq.Back})
		}

		var got []string
		for _, r := range f.apply(ops...) {
			if r.Err == nil {
				got = append(got, string(r.Item.Value))
			} else {
				wantError(t, r.Err, fdbpq.ErrGroupLimits)
			}
		}
		if len(got) != 5 {
			t.Errorf("got %v", got)
		}
		f.check()
	}
}

// Of two concurrent transactions on groups with limits, one is repeated only if it depends on the
// other.
func TestGroupConflicts(t *testing.T) {
	limit := func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 2 }
	rated := func(s *fdbpq.Settings) { s.RatePerGroup = "2/1h" }

	for _, c := range []struct {
		set           func(*fdbpq.Settings) // of the queue, nil without a limit
		first, second string                // operations, by their names below
		conflict      bool
	}{
		{limit, "lease", "lease from the back", true},
		{nil, "lease", "lease from the back", false},
		{limit, "late extension", "lease from the back", true},
		{limit, "lease from the back", "late extension", false},
		{limit, "lease", "acknowledgement", false},
		{limit, "acknowledgement", "lease", false},
		{rated, "pop", "pop from the back", true},
		{func(s *fdbpq.Settings) { s.Rate = "2/1h" }, "pop", "pop from the back", true},
		{limit, "settings", "lease", true},
		{limit, "push", "push", false},
		{rated, "push", "push", false},
	} {
		f := onMem(t)
		q := f.queue("q")
		f.pushGroup(q, "a", 6, 1)
		lease := f.apply(leaseOf(q, fdbpq.Front))[0].Lease.Token
		over := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
		late := f.applyAt(time.Now().Add(-time.Hour), over)[0].Lease.Token
		f.apply(op(opPeekMin, q)) // brings back what is late

		if c.set != nil {
			f.configure(q, c.set)
		}

		ops := map[string]fdbpq.Op{
			"lease":               leaseOf(q, fdbpq.Front),
			"lease from the back": leaseOf(q, fdbpq.Back),
			"pop":                 op(opPopMin, q),
			"pop from the back":   op(opPopMax, q),
			"push":                inGroup(opPush(q, 1, "new"), "a"),
			"acknowledgement":     {Kind: fdbpq.OpAck, Queue: q, Token: lease},
			"late extension":      {Kind: fdbpq.OpExtend, Queue: q, Token: late},
			"settings":            {Kind: fdbpq.OpConfigure, Queue: q, Configure: maxLeased(100)},
		}

		t.Log(c.first, ", then ", c.second)
		first := func() { wantError(t, f.apply(ops[c.first])[0].Err, nil) }
		f.wantConflict(c.conflict, first, ops[c.second])
	}
}

// A search conflicts with what another transaction does to the items that it compares, and with
// nothing else.
func TestSearchConflicts(t *testing.T) {
	push := func(priority int64, group string) func(*fixture, fdbpq.Target, fdbpq.ID) {
		return func(f *fixture, q fdbpq.Target, _ fdbpq.ID) {
			f.apply(inGroup(opPush(q, priority, group), group))
		}
	}
	remove := func(f *fixture, q fdbpq.Target, item fdbpq.ID) {
		f.apply(fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: item})
	}
	popAsRecipe := func(f *fixture, q fdbpq.Target, item fdbpq.ID) {
		f.corrupt = true
		write(f, func(tx kv.Transaction) { tx.Clear(q.Layout().ItemKey(&item)) })
	}

	for name, c := range map[string]struct {
		other    func(f *fixture, q fdbpq.Target, item fdbpq.ID)
		conflict bool
	}{
		// The item has the priority 5.
		"a push before the item of its group":     {push(3, "b"), true},
		"a push behind it":                        {push(7, "b"), false},
		"a push of the group that is passed over": {push(3, "a"), false},
		"a removal": {remove, true},
		"a pop by a program with the bare recipe": {popAsRecipe, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("q")
			f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
			f.pushGroup(q, "a", 70, 1)
			item := f.apply(inGroup(opPush(q, 5, "b"), "b"))[0].Item.ID
			f.apply(leaseOf(q, fdbpq.Front))

			r := f.wantConflict(c.conflict, func() { c.other(f, q, item) }, leaseOf(q, fdbpq.Front))
			wantEqual(t, "found", r[0].Item.ID, item)
		})
	}
}

// Over any time d there are at most n + d/T deliveries, of the queue and of each group, and a pop
// that waits is told when the next may be.
func TestRates(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		clock := f.setClock()
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.Rate, s.RatePerGroup = "7/1s", "3/1s" })

		for _, group := range []string{"a", "b", "c", "d"} {
			f.pushGroup(q, group, 100, 1)
		}

		times := map[string][]time.Time{}
		for range f.steps(300) {
			r := f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, Waits: true})[0]
			if r.Err == nil {
				for _, name := range []string{"", r.Item.Group()} {
					times[name] = append(times[name], clock.now())
				}
				continue
			}

			if !errors.Is(r.Err, fdbpq.ErrEmpty) || r.NextDue.IsZero() ||
				!r.NextDue.After(clock.now()) {
				f.Fatalf("%v, next due %v at %v", r.Err, r.NextDue, clock.now())
			}

			switch random.IntN(3) {
			case 0:
				clock.advance(time.Duration(random.IntN(400)) * time.Millisecond)
			case 1: // just before it may be, nothing is served
				clock.advance(r.NextDue.Sub(clock.now()) - 1)
				wantError(f.T, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
			default:
				clock.advance(r.NextDue.Sub(clock.now()))
			}
		}
		wantRate(f.T, times[""], must(settings.ParseRate("7/1s")))
		for _, group := range []string{"a", "b", "c", "d"} {
			wantRate(f.T, times[group], must(settings.ParseRate("3/1s")))
		}
	})
}

// wantRate checks deliveries over all windows.
func wantRate(t *testing.T, times []time.Time, rate settings.Rate) {
	t.Helper()
	if len(times) < 5 {
		t.Errorf("there are only %d deliveries", len(times))
	}

	for i := range times {
		for j := i; j < len(times); j++ {
			n, most := j-i+1, rate.Count+int64(times[j].Sub(times[i])/rate.Interval())
			if int64(n) > most {
				t.Fatalf("%d deliveries within %v, want at most %d",
					n, times[j].Sub(times[i]), most)
			}
		}
	}
}

// A changed rate starts over, errors say what is used up and until when, and a rate out of bounds
// is refused.
func TestRateChanges(t *testing.T) {
	f := onMem(t)
	clock := f.setClock()
	q := f.queue("q")
	f.configure(q, func(s *fdbpq.Settings) { s.Rate = "1/24h" })
	f.pushGroup(q, "a", 5, 1)
	f.popGroups(q, 1)
	r := f.apply(op(opPopMin, q))[0]
	var used *fdbpq.RateError

	wantError(t, r.Err, fdbpq.ErrRate)
	wantError(t, r.Err, fdbpq.ErrEmpty)
	if !errors.As(r.Err, &used) || !used.Until.Equal(clock.now().Add(24*time.Hour)) ||
		!strings.HasPrefix(r.Err.Error(), "fdbpq: the queue's rate of 1/24h is used up until 2") {
		t.Errorf("%v", r.Err)
	}

	f.configure(q, func(s *fdbpq.Settings) { s.Rate, s.RatePerGroup = "", "1/24h" })
	f.popGroups(q, 1)

	r = f.apply(op(opPopMin, q))[0]
	wantEqual(t, "error", r.Err.Error(), "fdbpq: nothing may be served now: the groups of the "+
		"ready items have used up rate_per_group 1/24h")

	f.configure(q, func(s *fdbpq.Settings) { s.RatePerGroup, s.MaxLeasedPerGroup = "2/1s", 3 })
	f.popGroups(q, 2)

	r = f.apply(op(opPopMin, q))[0]
	wantEqual(t, "error", r.Err.Error(),
		"fdbpq: nothing may be served now: the groups of the ready items have "+
			"max_leased_per_group 3 leased or have used up rate_per_group 2/1s")

	for _, rate := range []string{
		"10", "0/1s", "10/0s", "10/25h", "1000001/1s", "-1/1s", "1/1s/1s", "1/999ms", "x", "+1/1s",
		"01/1s",
	} {
		err := f.apply(fdbpq.Op{
			Kind:      fdbpq.OpConfigure,
			Queue:     q,
			Configure: func(s *fdbpq.Settings) { s.Rate = rate },
		})[0].Err

		want := fmt.Sprintf(
			"rate: %q: want n/duration, such as \"10/1s\", with 1 to 1000000 and 1s to 24h", rate)
		if !errors.Is(err, fdbpq.ErrSettings) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", rate, err)
		}
	}
}

// blockFront has a search needed for each pop: it fills the front with items of a group that is at
// its limit.
func (f *fixture) blockFront(q fdbpq.Target) {
	f.Helper()
	f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
	f.pushGroup(q, "blocked", 100, 1)
	wantError(f.T, f.apply(leaseOf(q, fdbpq.Front))[0].Err, nil)
}

// A pop is repeated if a group that was empty when its search began gets an item that another
// client has seen.
func TestSearchIsLinearizable(t *testing.T) {
	// By their hashes they are before the others, between them, and after them.
	for _, group := range []string{"a", "i", "c", "new"} {
		t.Run(group, func(t *testing.T) {
			f := onMem(t)
			f.fixGroups()
			q := f.queue("q")
			f.blockFront(q)
			f.apply(inGroup(opPush(q, 9, "last"), "there"))

			var seen []fdbpq.Result
			b := fdbpq.NewBatcher(&hooked{Database: f.db, beforeCommit: func() {
				if seen == nil {
					f.apply(inGroup(opPush(q, 5, "first"), group))
					seen = f.apply(op(opPeekMax, q))
				}
			}}, f.Keyspace)

			r := must(b.Apply(f.ctx, []fdbpq.Op{op(opPopMin, q)}))[0]
			wantError(t, r.Err, nil)

			if got := string(r.Item.Value); got != "first" {
				t.Errorf("popped %q, although %q was before it and both were seen", got, "first")
			}
			wantEqual(t, "seen", string(seen[0].Item.Value), "last")
		})
	}
}

// Searches from both ends that meet the row of an item taken by another program remove and count
// it once.
func TestSearchesMissOnce(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.blockFront(q)

		for i := range 100 { // from the back, too
			f.apply(inGroup(opPush(q, 99, fmt.Sprint("blocked-", i)), "blocked"))
		}

		// Another program takes the two items of group b, one of them between the others.
		f.apply(inGroup(opPush(q, 5, "first"), "a"), inGroup(opPush(q, 6, "taken"), "b"),
			inGroup(opPush(q, 7, "last"), "c"))
		f.apply(inGroup(opPush(q, 8, "gone"), "b"))
		f.takeAsRecipe("taken")
		f.takeAsRecipe("gone")
		f.corrupt = true // counters have the items that the other program took

		results := f.apply(op(opPopMin, q), op(opPopMax, q), op(opPopMin, q), op(opPopMax, q))
		wantList(f.T, "popped", summary(make([]fdbpq.Op, 2), results[:2]), "first", "last")
		wantError(f.T, results[2].Err, fdbpq.ErrEmpty)

		if n := f.groupReady(q, "b"); n != 0 {
			f.Errorf("%d items of the group are counted", n)
		}

		for _, pair := range f.stored(f.priority) { // "w" is the index by groups
			key := must(tuple.Unpack(pair.Key))
			if key[2] == "w" && (key[4] == int64(6) || key[4] == int64(8)) {
				f.Errorf("left is %v", key)
			}
		}
	})
}

// groupReady is how many items of a group are counted as ready.
func (f *fixture) groupReady(q fdbpq.Target, group string) int64 {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) (int64, error) {
		return state.ReadCounter(r.Get(q.Layout().GroupCounterKey(f.readyCounter(group))))
	}))
}

// readyCounter is the counter of the ready items of a group.
func (f *fixture) readyCounter(group string) codec.GroupCounter {
	return codec.GroupCounter{Hash: f.groupHash(group), Of: codec.GroupReady}
}

// The order of a group depends on the keys of its items alone, even if a counter is wrong.
func TestGroupOrderWithWrongCounter(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 5, 1)
		f.corrupt = true
		counter := q.Layout().GroupCounterKey(f.readyCounter("a"))
		write(f, func(tx kv.Transaction) { tx.Add(counter, -5) })
		f.apply(inGroup(opPush(q, 1, "a6"), "a"))
		f.apply(inGroup(opPush(q, 1, "a7"), "a"))

		wantList(f.T, "popped", f.popGroups(q, 4), "a1", "a2", "a3", "a4")

		f.apply(inGroup(opPush(q, 1, "a8"), "a"))
		wantList(f.T, "popped", f.popGroups(q, 4), "a5", "a6", "a7", "a8")
	})
}
