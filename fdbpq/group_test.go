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
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
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

// groupHash returns the hash of a group in the Keyspace.
func (f *fixture) groupHash(group string) codec.GroupHash {
	f.Helper()
	key := []byte(f.queue("q").Layout().List.GroupSecret)
	secret := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]byte, error) {
		return r.Get(key).Get()
	}))

	return codec.HashGroup(secret, group)
}

// fixedSecret is the secret of a Keyspace after fixGroups, and fixedHash the hash of a group then.
var fixedSecret = make([]byte, codec.GroupSecretSize)

func fixedHash(group string) codec.GroupHash { return codec.HashGroup(fixedSecret, group) }

// fixGroups gives the Keyspace a known secret, for a test in which the order of hashes matters.
func (f *fixture) fixGroups() {
	f.Helper()
	key := []byte(f.queue("q").Layout().List.GroupSecret)
	write(f, func(tx kv.Transaction) { tx.Set(key, fixedSecret) })
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

// Groups are served in turn, by weight, each in its own order. A group that comes later shares
// from then on.
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
	})
}

// Rows of turns that remain when items go from the back do not keep the queue in the list.
func TestRowsOfTurnsAreRetired(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 50, 1)
		f.popGroups(q, 10)

		for f.apply(op(opPopMax, q))[0].Err == nil {
		}

		// "v" is the kind of rows of turns.
		left := f.stored(f.priority)
		if len(left) != 1 || must(tuple.Unpack(left[0].Key))[2] != "v" {
			t.Errorf("left are %x", left)
		}

		mark := fdbpq.NewMark()
		f.retire("left", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.retire("left again", []fdbpq.Target{q}, mark, mark, fdbpq.NotListed)

		wantEqual(t, "keys", len(f.stored(f.priority)), 0)
	})
}

// wantTurns pops items that may come in any order, because they are of one turn, but of each group
// in its own.
func (f *fixture) wantTurns(q fdbpq.Target, n int, want string) {
	f.Helper()
	got := f.popGroups(q, n)
	slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })

	if text := strings.Join(got, " "); text != want {
		f.Errorf("popped %s, want %s", text, want)
	}
}

// While two groups have ready items, what they have got for their weight differs by less than
// three turns, whatever is leased, comes back or is pushed.
func TestTurnsAreFair(t *testing.T) {
	f := onMem(t)
	random, _ := newRandom(t)
	f.setClock()
	q := f.queue("q")
	weights := map[string]int{"a": 1, "b": 1, "c": 3, "d": 2, "e": 1, "f": 10, "g": 100}
	names := slices.Sorted(maps.Keys(weights))
	ready := map[string]int{}

	push := func(group string, n int) {
		f.pushGroup(q, group, n, weights[group])
		ready[group] += n
	}

	push("a", 300)
	refilled := map[string]int{"f": 2, "g": 3} // groups that never have more

	for group, n := range refilled {
		push(group, n)
	}

	pairs := map[string]*turnsOfPair{}
	var held []fdbpq.Result

	// "b" comes after 100 deliveries, random groups after 200, and after 300 leases come back.
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

		if ready[group] < refilled[group] {
			push(group, 1)
		}

		if random.IntN(20) == 0 { // it stays leased
			held = append(held, r)
		} else {
			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: r.Lease.Token}
			wantError(t, f.apply(ack)[0].Err, nil)
		}

		// The turns of a pair are counted as long as both groups have ready items.
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

// A group keeps the share of its weight however few of its items are ready.
func TestWeightsOfSmallBacklogs(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, weight := range []int{2, 3, 10, 100} {
			for _, backlog := range []int{1, 2, 3, 20} {
				for _, leases := range []bool{false, true} {
					f.serveSmallBacklog(weight, backlog, leases)
				}
			}
		}
	})
}

// serveSmallBacklog serves a group with a large backlog and one with a small backlog, which is
// refilled after each delivery. Leases are acknowledged after that, or not at all.
func (f *fixture) serveSmallBacklog(weight, backlog int, leases bool) {
	f.Helper()
	q := f.queue(fmt.Sprint("w", weight, "-", backlog, leases))
	f.pushGroup(q, "a", 30, 1)
	f.pushGroup(q, "b", backlog, weight)

	var pair turnsOfPair
	for n := range f.steps(240) {
		take := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}
		if leases {
			take = leaseOf(q, fdbpq.Front)
		}

		r := f.apply(take)[0]
		wantError(f.T, r.Err, nil)

		if r.Item.Group() == "a" {
			pair.served(1)
			f.pushGroup(q, "a", 1, 1)
		} else {
			pair.served(-1 / float64(weight))
			f.pushGroup(q, "b", 1, weight)
		}
		if leases && n%7 > 0 { // the others stay leased
			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: r.Lease.Token}
			wantError(f.T, f.apply(ack)[0].Err, nil)
		}
	}

	if d := pair.difference(); d >= 3 {
		f.Errorf("weight %d, %d ready, leases %t: the groups differ by %.2f turns",
			weight, backlog, leases, d)
	}
}

// Programs that push a group at the same moment may share counts, and later pushes come behind.
func TestPushesOfGroupAtOnce(t *testing.T) {
	onEngines(t, func(f *fixture) {
		if f.db.Traits().Serial {
			f.Skip("one writer at a time")
		}

		q := f.queue("q")
		f.fixGroups() // which the first push with a group does otherwise, with conflict
		var txs []kv.Transaction

		for range 3 {
			tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
			for range 4 {
				push := inGroup(opPush(q, 1, "a"), "a")
				results, err := fdbpq.Apply(tx, []fdbpq.Op{push}, time.Now())
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
		wantEqual(f.T, "count after 12 items in 4 turns", next.Count, 4)

		more := f.apply(inGroup(opPush(q, 1, "a"), "a"))[0].Item.ID
		wantEqual(f.T, "count after that", more.Count, 5)
	})
}

// Groups are told apart even if the first 40 bits of their hashes are the same: by pauses, limits
// and infos, in a Keyspace and outside.
func TestGroupsWithSimilarHashes(t *testing.T) {
	const one, other = "t210179", "t1692729" // found by trying
	f := onMem(t)
	outside := tuple.NewSubspace(tuple.Tuple{f.priority + "-outside"})
	alone := fdbpq.NewPriorityQueue(outside, f.format)

	for name, q := range map[string]*fdbpq.PriorityQueue{"named": f.queue("q"), "alone": alone} {
		f.pushGroup(q, one, 2, 1)
		f.pushGroup(q, other, 2, 1)

		f.configure(q, func(s *fdbpq.Settings) {
			s.PausedGroups, s.MaxLeasedPerGroup = []string{one}, 1
		})
		first := f.apply(leaseOf(q, fdbpq.Front))[0]
		wantError(t, first.Err, nil)
		wantEqual(t, name+": leased while one is paused", first.Item.Group(), other)

		f.configure(q, func(s *fdbpq.Settings) { s.PausedGroups = nil })
		second := f.apply(leaseOf(q, fdbpq.Front))[0]
		wantError(t, second.Err, nil)
		wantEqual(t, name+": leased while one has its limit", second.Item.Group(), one)

		info := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q})[0].Info
		want := []fdbpq.GroupCount{
			{Group: other, Ready: 1, Leased: 1},
			{Group: one, Ready: 1, Leased: 1},
		}
		if !slices.Equal(info.Groups, want) {
			t.Errorf("%s: the groups are %+v, want %+v", name, info.Groups, want)
		}
	}
}

// All programs hash groups with one secret, which the first push with a group makes, even if
// several try at once.
func TestGroupSecret(t *testing.T) {
	f := onMem(t)
	push := inGroup(opPush(f.queue("q"), 1, "a"), "a")

	overtaken := false
	slow := fdbpq.NewBatcher(&hooked{Database: f.db, beforeCommit: func() {
		if !overtaken {
			overtaken = true
			wantError(t, f.apply(push)[0].Err, nil)
		}
	}}, f.Keyspace)

	for range 2 {
		results := must(slow.Apply(f.ctx, []fdbpq.Op{push}))
		wantError(t, results[0].Err, nil)
	}
	f.check() // compares each hash with the secret

	another := onMem(t)
	another.apply(push)
	if f.groupHash("a") == another.groupHash("a") {
		t.Error("two stores have the same secret")
	}
}

// Of two concurrent pushes of a group that get the same id, one conflicts, delayed or not, so they
// never become one item.
func TestPushesWithTheSameID(t *testing.T) {
	m, now := inGroup(opPush(nil, 1, "a"), "a").Message, time.Now()
	id := codec.NewID(1, 0, now, make([]byte, codec.UniqueSize), 1)
	codec.SetGroup(&id, 1, 1)

	adds := []func(g *state.Ledger){
		func(g *state.Ledger) { g.Add(&id, &m) },
		func(g *state.Ledger) { g.AddDelayed(&id, &m, now.Add(time.Hour)) },
	}

	for range adds {
		f := onMem(t)
		var txs []kv.Transaction

		for _, add := range adds {
			tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
			g := state.NewLedger(tx, f.queue("q").Layout(), now, nil)
			add(&g)

			wantError(t, g.Flush(), nil)

			txs = append(txs, tx)
		}

		wantError(t, errOf(txs[0].Commit().Get()), nil)
		wantError(t, errOf(txs[1].Commit().Get()), kv.ErrConflict)

		f.corrupt = true // the hash is not that of the group
		slices.Reverse(adds)
	}
}

// A new group does not get all turns while another, which is passed over, holds the first place.
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

// turnsOfPair is by how many turns one of two groups has got more than the other, and the extremes
// of that, since both have ready items.
type turnsOfPair struct{ sum, low, high float64 }

func (p *turnsOfPair) served(turns float64) {
	p.sum += turns
	p.low, p.high = min(p.low, p.sum), max(p.high, p.sum)
}

// difference is the largest of any stretch of time.
func (p *turnsOfPair) difference() float64 { return p.high - p.low }

// A push with a bad group or weight fails, and changes nothing.
func TestBadGroups(t *testing.T) {
	f := onMem(t)
	q := f.queue("q")

	for want, headers := range map[string][]string{
		"empty":     {""},
		"none":      {},
		"twice":     {"a", "b"},
		"two lines": {"a\nb"},
		"a return":  {"a\rb"},
		"too long":  {strings.Repeat("g", 129)},
	} {
		push := opPush(q, 1, want)
		push.Message.Headers = map[string][]string{fdbpq.GroupHeader: headers}

		err := f.apply(push)[0].Err
		const text = "bad Pq-Group: want 1 to 128 bytes of UTF-8 in one line, once"
		if !errors.Is(err, fdbpq.ErrOp) || !strings.Contains(err.Error(), text) {
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

// A group whose items were taken by a program that does not know groups is served with the next 20
// items of all groups, its own in order.
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

// A purge removes what programs with the bare recipe leave of leased items, which would keep a
// group at its limit.
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

// Groups that push as fast as they are served, or come once, do not keep a group with a backlog
// waiting: of three groups, it gets about a third of the deliveries.
func TestGroupsThatComeAgainLeaveTurns(t *testing.T) {
	const deliveries, least = 60, 15
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

		for i := range deliveries {
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
		if served < least {
			t.Errorf("groups that come once %v: the one with a backlog was served %d of %d times",
				once, served, deliveries)
		}
	}
}
