package fdbpq_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// inGroup gives the message of a push a group.
func inGroup(push fdbpq.Op, group string) fdbpq.Op {
	headers := maps.Clone(push.Message.Headers)
	if headers == nil {
		headers = map[string][]string{}
	}
	headers[fdbpq.GroupHeader] = []string{group}
	push.Message.Headers = headers
	return push
}

// pushGroup pushes items with the values group+"1" and so on, with a weight, in one batch.
func (f *fixture) pushGroup(q fdbpq.Target, group string, n, weight int) {
	f.Helper()
	var ops []fdbpq.Op
	for i := range n {
		op := inGroup(opPush(q, 1, fmt.Sprint(group, i+1)), group)
		op.Weight = weight
		ops = append(ops, op)
	}
	wantErrors(f.T, f.apply(ops...))
}

// popGroups pops n items one by one, and returns their values.
func (f *fixture) popGroups(q fdbpq.Target, n int) (values []string) {
	f.Helper()
	for range n {
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})[0]
		wantError(f.T, r.Err, nil)
		values = append(values, string(r.Item.Value))
	}
	return values
}

// Groups are served in turn, by weight, and each in its order. A group that comes later shares from then on.
func TestGroupsTakeTurns(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 6, 1)
		f.pushGroup(q, "b", 3, 1)
		f.wantTurns(q, 2, "a1 b1")
		f.wantTurns(q, 2, "a2 b2")
		f.pushGroup(q, "c", 2, 1) // comes in where the others are
		f.wantTurns(q, 3, "a3 b3 c1")
		f.wantTurns(q, 1, "a4")
		f.pushGroup(q, "d", 5, 2) // two in each turn, but for the one that has begun
		f.wantTurns(q, 1, "c2")
		f.wantTurns(q, 3, "a5 d1 d2")
		f.wantTurns(q, 3, "a6 d3 d4")
		f.wantTurns(q, 1, "d5")
		wantError(t, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
		wantEqual(t, "keys", len(f.stored(f.priority)), 0)

		// What is left of turns when items go from the back does not keep the queue in the list.
		f.pushGroup(q, "a", 50, 1)
		f.popGroups(q, 10)
		for f.apply(op(opPopMax, q))[0].Err == nil {
		}
		if left := f.stored(f.priority); len(left) != 1 || must(tuple.Unpack(left[0].Key))[2] != "v" {
			t.Errorf("left are %x", left)
		}
		mark := fdbpq.NewMark()
		f.retire("left", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.retire("left again", []fdbpq.Target{q}, mark, mark, fdbpq.NotListed)
		wantEqual(t, "keys", len(f.stored(f.priority)), 0)
	})
}

// wantTurns pops items that may come in any order, because they are of one turn, but of each group in its own.
func (f *fixture) wantTurns(q fdbpq.Target, n int, want string) {
	f.Helper()
	got := f.popGroups(q, n)
	slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	if text := strings.Join(got, " "); text != want {
		f.Errorf("popped %s, want %s", text, want)
	}
}

// While two groups have ready items, they differ by less than three turns in what they have got for their weight, since
// any time, whatever is leased, comes back late, or is pushed meanwhile.
func TestTurnsAreFair(t *testing.T) {
	f := onMem(t)
	random, _ := newRandom(t)
	f.setClock()
	q := f.queue("q")
	weights := map[string]int{"a": 1, "b": 1, "c": 3, "d": 2, "e": 1}
	names := slices.Sorted(maps.Keys(weights))
	ready := map[string]int{}
	push := func(group string, n int) {
		f.pushGroup(q, group, n, weights[group])
		ready[group] += n
	}
	push("a", 300)

	pairs := map[string]*turnsOfPair{}
	var held []fdbpq.Result
	for n := range harness.Times(1000, 2000) {
		late := n > 300 && len(held) > 0 && random.IntN(20) == 0
		if late { // one comes back, and is the first then
			r := f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: held[0].Lease.Token})[0]
			wantError(t, r.Err, nil)
			ready[held[0].Item.Group()]++
			held = held[1:]
		}
		switch {
		case n == 100:
			push("b", 200)
		case late && random.IntN(2) == 0 || n > 200 && random.IntN(20) == 0:
			push(names[random.IntN(len(names))], 1+random.IntN(40))
		}

		r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})[0]
		if errors.Is(r.Err, fdbpq.ErrEmpty) {
			continue
		}
		wantError(t, r.Err, nil)
		group := r.Item.Group()
		ready[group]--
		if random.IntN(20) == 0 {
			held = append(held, r)
		} else {
			wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: r.Lease.Token})[0].Err, nil)
		}

		for i, a := range names {
			for _, b := range names[:i] {
				if pairs[a+b] == nil || ready[a] == 0 || ready[b] == 0 {
					pairs[a+b] = &turnsOfPair{}
				} else if r.Lease.Deliveries > 1 { // it was counted
				} else if group == a {
					pairs[a+b].served(1 / float64(weights[a]))
				} else if group == b {
					pairs[a+b].served(-1 / float64(weights[b]))
				}
				if d := pairs[a+b].difference(); d >= 3 {
					t.Fatalf("%s and %s differ by %.2f turns after %d deliveries", a, b, d, n)
				}
			}
		}
	}
}

// Bridges that push a group at the same moment give it the same counts, in each of which it has an item of each. The
// next push goes back to where the group would be, so that it does not get more than others for good.
func TestPushesOfGroupAtOnce(t *testing.T) {
	onEngines(t, func(f *fixture) {
		if f.db.Traits().Serial {
			f.Skip("one writer at a time")
		}
		q := f.queue("q")
		var txs []kv.Transaction
		for range 3 {
			tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
			for range 4 {
				results, err := fdbpq.Apply(tx, []fdbpq.Op{inGroup(opPush(q, 1, "a"), "a")}, time.Now())
				wantError(f.T, err, nil)
				wantError(f.T, results[0].Err, nil)
			}
			txs = append(txs, tx)
		}
		for _, tx := range txs {
			_, err := tx.Commit().Get()
			wantError(f.T, err, nil)
		}
		f.check()

		next := f.apply(inGroup(opPush(q, 1, "a"), "a"))[0].Item.ID
		wantEqual(f.T, "count after 12 items in 4 turns", next.Count, 12)
		more := f.apply(inGroup(opPush(q, 1, "a"), "a"))[0].Item.ID
		wantEqual(f.T, "count after that", more.Count, 13)
	})
}

// A group that comes new does not get all turns because another one, which is passed over, has the first place.
func TestTurnsBesideBlockedGroup(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
		f.pushGroup(q, "a", 10, 1)
		f.pushGroup(q, "b", 30, 1)
		wantEqual(t, "leased", string(f.apply(leaseOf(q, fdbpq.Front))[0].Item.Value), "a1")
		f.popGroups(q, 20)
		f.pushGroup(q, "c", 10, 1)
		for i := range 4 {
			f.wantTurns(q, 2, fmt.Sprintf("b%d c%d", 21+i, 1+i))
		}
	})
}

// turnsOfPair is by how many turns one of two groups has got more than the other, and the extremes of that, since
// both have ready items.
type turnsOfPair struct{ sum, low, high float64 }

func (p *turnsOfPair) served(turns float64) {
	p.sum += turns
	p.low, p.high = min(p.low, p.sum), max(p.high, p.sum)
}

// difference is the largest of any stretch of time.
func (p *turnsOfPair) difference() float64 { return p.high - p.low }

// Bad groups and weights fail their push and change nothing.
func TestBadGroups(t *testing.T) {
	f := onMem(t)
	q := f.queue("q")
	for want, headers := range map[string][]string{
		"empty": {""}, "none": {}, "twice": {"a", "b"}, "two lines": {"a\nb"}, "a return": {"a\rb"}, "too long": {strings.Repeat("g", 129)},
	} {
		push := opPush(q, 1, want)
		push.Message.Headers = map[string][]string{fdbpq.GroupHeader: headers}
		err := f.apply(push)[0].Err
		if !errors.Is(err, fdbpq.ErrOp) || !strings.Contains(err.Error(), "bad Pq-Group: want 1 to 128 bytes in one line, once") {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, weight := range []int{-1, 101} {
		push := inGroup(opPush(q, 1, ""), "a")
		push.Weight = weight
		wantError(t, f.apply(push)[0].Err, fdbpq.ErrOp)
	}
	push := opPush(q, 1, "")
	push.Weight = 1
	wantError(t, f.apply(push)[0].Err, fdbpq.ErrOp)
	wantEqual(t, "keys", len(f.stored(f.priority)), 0)

	longest := inGroup(opPush(q, 1, ""), strings.Repeat("g", 128))
	longest.Weight = 100
	wantError(t, f.apply(longest)[0].Err, nil)
}

// A group whose items were taken by a program that does not know groups, and left their keys behind, does not
// wait until the others have had as many turns. Items of it that are there are still served in order.
func TestGroupTakenByAnotherProgram(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 50, 1)
		write(f, func(tx kv.Transaction) { tx.ClearRange(itemRange(f.priority, "q")) })
		f.corrupt = true // counters have the items that are gone

		f.pushGroup(q, "b", 4, 1)
		f.apply(inGroup(opPush(q, 1, "a1"), "a"), inGroup(opPush(q, 1, "a2"), "a"))
		f.apply(inGroup(opPush(q, 1, "a3"), "a"))
		f.pushGroup(q, "b", 20, 1)
		got := f.popGroups(q, 20)
		place := map[string]int{}
		for i, value := range got {
			place[value] = i + 1
		}
		if place["a1"] == 0 || place["a1"] > place["a2"] || place["a2"] > place["a3"] {
			t.Errorf("popped %v", got)
		}
	})
}

// An earlier version ends leases and leaves their keys, so a group seems to be at its limit. A purge of all
// items removes what is left.
func TestPurgeRemovesWhatOthersLeft(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
		f.pushGroup(q, "a", 3, 1)
		leased := f.apply(leaseOf(q, fdbpq.Front))[0]
		wantError(t, leased.Err, nil)
		write(f, func(tx kv.Transaction) { tx.Clear(fdbpq.HeldKey(q, &leased.Item.ID)) })
		wantError(t, f.apply(leaseOf(q, fdbpq.Front))[0].Err, fdbpq.ErrGroupLimits)

		wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})[0].Err, nil)
		f.pushGroup(q, "a", 1, 1)
		r := f.apply(leaseOf(q, fdbpq.Front))[0]
		wantError(t, r.Err, nil)
		f.corrupt = true // the time index has the lease that is gone
	})
}

// Groups that push as fast as they are served, and have nothing in between, do not keep one with a
// backlog waiting, and neither do groups that come once.
func TestGroupsThatComeAgainLeaveTurns(t *testing.T) {
	for _, once := range []bool{false, true} {
		f := onMem(t)
		q, now := f.queue("jobs"), time.Now()
		push := func(group string) {
			now = now.Add(time.Millisecond)
			f.one(now, inGroup(opPush(q, 0, group), group))
		}
		for range 20 {
			push("backlog")
		}
		push("a")
		push("c")
		served := 0
		for i := range 60 {
			now = now.Add(time.Millisecond)
			switch group := string(f.one(now, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}).Item.Value); {
			case group == "backlog":
				served++
			case once:
				push(fmt.Sprint(i))
			default:
				push(group)
			}
		}
		if served < 15 {
			t.Errorf("groups that come once %v: the one with a backlog was served %d of 60 times", once, served)
		}
	}
}
