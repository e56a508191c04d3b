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
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func maxLeased(n int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.MaxLeased = n }
}

func maxItems(n int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.MaxItems = n }
}

// An item that cannot be read is not discarded, and one that is due does not keep pushes from an
// answer.
func TestLimitsBesideCorruptItem(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	clock := f.setClock()
	q := f.queue("jobs")
	held := f.apply(withDelay(opPush(q, 9, "a"), time.Second))[0].Item.ID
	write(f, func(tx kv.Transaction) { tx.Set(fdbpq.HeldKey(q, &held), []byte("x")) })
	f.configure(q, discardOld(1, 0))

	wantError(t, f.apply(opPush(q, 1, "b"))[0].Err, fdbpq.ErrCorrupt)

	f.configure(q, func(s *fdbpq.Settings) { s.Discard = "" })
	clock.advance(time.Hour)
	wantError(t, f.apply(opPush(q, 1, "b"))[0].Err, fdbpq.ErrFull)
}

// Pushes to a queue with a limit conflict with what changes the number that it limits. Without a
// limit nothing is read, and nothing conflicts.
func TestLimitConflicts(t *testing.T) {
	for _, limit := range []int64{0, 1000} {
		f := onMem(t)
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) {
			s.MaxItems, s.MaxLeased, s.AckWait = limit, limit, time.Minute
		})
		f.push(q, 1, "a")

		f.wantConflict(limit > 0, func() { f.push(q, 1, "c") }, opPush(q, 1, "b"))

		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}
		back := lease
		back.End = fdbpq.Back

		f.wantConflict(limit > 0, func() { f.apply(lease) }, back)
	}
}

// Neither marking nor retiring a queue whose items another program has removed conflicts with a
// push.
func TestRetireBesidePush(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "a")
	write(f, func(tx kv.Transaction) { q.ClearItems(tx) })

	mark := fdbpq.NewMark()
	f.wantConflict(false, func() {
		f.retire("empty", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	}, opPush(q, 1, "b"))

	write(f, func(tx kv.Transaction) { q.ClearItems(tx) })
	f.retire("empty again", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	f.wantConflict(false, func() {
		f.retire("last look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
	}, opPush(q, 1, "c"))
	f.wantListed("afterwards", "jobs")
}

// Whatever many clients do at the same time, there are never more items or leases than the limits
// allow, and every item ends once.
func TestRaces(t *testing.T) {
	onEngines(t, testRaces)
	t.Run("faults", func(t *testing.T) {
		_, seed := newRandom(t)
		f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
		testRaces(f.fixture)
		f.calm()
	})
}

// The limits of queues in races, and the bytes of each value.
const (
	raceItems     = 7
	raceItemBytes = 4
	raceBytes     = raceItems * raceItemBytes
)

func testRaces(f *fixture) {
	for _, set := range []func(*fdbpq.Settings){
		maxItems(raceItems),
		func(s *fdbpq.Settings) { s.MaxBytes = raceBytes },
		discardOld(raceItems, 0),
		discardOld(0, raceBytes),
		maxLeased(2),
		func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 },
	} {
		r := &limitRace{fixture: f, q: f.queue("jobs"), ends: map[fdbpq.ID]int{}}
		f.configure(r.q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })
		r.run(f.configure(r.q, set))
		f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: r.q},
			fdbpq.Op{Kind: fdbpq.OpPurge, Queue: r.q.DeadLetters()})
	}
}

// limitRace is a race for the items of a queue, raceItems of them at most if those are limited.
type limitRace struct {
	*fixture
	q *fdbpq.PriorityQueue

	mu           sync.Mutex
	pushed, dead int64
	discarded    int64
	ends         map[fdbpq.ID]int // how often items were popped or settled
}

// raceKinds is how many kinds of batches a worker makes in turn: see work.
const raceKinds = 6

// run lets workers race, and checks that every item is accounted for, and that the queue takes
// exactly as many items as it may have.
func (r *limitRace) run(s fdbpq.Settings) {
	const workers, each = 4, 4 * raceKinds
	var wg sync.WaitGroup

	for w := range workers {
		wg.Go(func() { r.work(w, each, &s) })
	}

	wg.Wait()

	// One kind in each turn adds a second to ack_wait.
	got, info := r.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: r.q})[0].Settings, r.infoOf(r.q, 0)
	wantEqual(r.T, "ack_wait", got.AckWait, workers*each/raceKinds*time.Second)
	wantEqual(r.T, "items", int64(len(r.ends))+r.discarded+info.Ready+info.Leased, r.pushed)
	wantEqual(r.T, "dead letters", r.length(r.q.DeadLetters()), r.dead)

	for id, n := range r.ends {
		if n != 1 {
			r.Errorf("%v ended %d times", id, n)
		}
	}

	if s.MaxLeased+s.MaxLeasedPerGroup > 0 {
		return
	}
	for n := info.Ready + info.Leased; n < raceItems; n++ {
		wantError(r.T, r.apply(opPush(r.q, 1, "fill"))[0].Err, nil)
	}
	wantError(r.T, r.apply(opPush(r.q, 9, "full"))[0].Err, fdbpq.ErrFull)
	if s.Discard == fdbpq.DiscardOld && info.Leased < raceItems {
		wantError(r.T, r.apply(opPush(r.q, -1, "more"))[0].Err, nil)
	}
	r.check()
}

// work makes batches as worker w, and checks after each that no limit of the settings s is
// exceeded.
func (r *limitRace) work(w, batches int, s *fdbpq.Settings) {
	b := fdbpq.NewBatcher(r.db, r.Keyspace)
	var tokens []fdbpq.Token
	var last fdbpq.ID

	for n := range batches {
		ops := []fdbpq.Op{
			op(fdbpq.Op{Kind: fdbpq.OpInfo}, r.q),
			opPush(r.q, int64(n%3), fmt.Sprintf("%d-%02d", w, n)),
		}

		if s.MaxLeasedPerGroup > 0 {
			ops[1] = inGroup(ops[1], string(rune('a'+n%2)))
		}

		switch more := (fdbpq.Op{Queue: r.q, Lease: time.Hour, ID: last}); n % raceKinds {
		case 0:
			more.Kind, more.Configure = fdbpq.OpConfigure, func(s *fdbpq.Settings) {
				s.AckWait += time.Second
			}
			ops = append(ops, more)
		case 1, 2:
			more.Kind, more.End = fdbpq.OpLease, fdbpq.End(w%2)
			ops = append(ops, more)
		case 3:
			ops = append(ops, op(opPopMin, r.q))
		case 4:
			more.Kind = fdbpq.OpRemove
			ops = append(ops, more)
		default: // settles all leases so far, each in another way
			for i, token := range tokens {
				kind := []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpTerm, fdbpq.OpNak}[(n/raceKinds+i)%3]
				ops = append(ops, fdbpq.Op{Kind: kind, Queue: r.q, Token: token})
			}
			tokens = nil
		}

		results, err := b.Apply(r.ctx, ops)
		if err != nil {
			r.Error(err)
			return
		}

		tooMany := func(g fdbpq.GroupCount) bool { return g.Leased > s.MaxLeasedPerGroup }
		switch i := results[0].Info; {
		case s.MaxLeasedPerGroup > 0 && slices.ContainsFunc(i.Groups, tooMany),
			s.MaxLeased > 0 && i.Leased > s.MaxLeased,
			s.MaxLeased+s.MaxLeasedPerGroup == 0 && i.Ready+i.Leased > raceItems:
			r.Errorf("there are %+v", i)
		}

		for i := range ops {
			if results[i].Err != nil {
				continue
			}

			switch ops[i].Kind {
			case fdbpq.OpPush:
				last = results[i].Item.ID
			case fdbpq.OpLease:
				tokens = append(tokens, results[i].Lease.Token)
			}

			r.note(&ops[i], &results[i])
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.discarded += b.SideEffects().Discarded
}

// note enters what an operation has done.
func (r *limitRace) note(o *fdbpq.Op, result *fdbpq.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()

	switch o.Kind {
	case fdbpq.OpPush:
		r.pushed++
	case fdbpq.OpPop:
		r.ends[result.Item.ID]++
	case fdbpq.OpRemove:
		r.ends[o.ID]++
	case fdbpq.OpTerm:
		r.dead++
		r.ends[o.Token.ID]++
	case fdbpq.OpAck:
		r.ends[o.Token.ID]++
	}
}

// discardOld limits a queue, which makes room for pushes. 0 is no limit.
func discardOld(items, bytes int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) {
		s.MaxItems, s.MaxBytes, s.Discard = items, bytes, fdbpq.DiscardOld
	}
}

// max_bytes cannot be set on a queue with more items than a transaction counts, and all that
// exceeds a lowered limit is discarded in time.
func TestLimitsOfLargeQueue(t *testing.T) {
	const many, limit = 5000, 10
	for _, q := range []func(f *fixture) fdbpq.Target{
		func(f *fixture) fdbpq.Target { return f.fifoQueue("jobs") },
		func(f *fixture) fdbpq.Target { return f.queue("jobs") },
	} {
		f := onMem(t)
		q := q(f)
		f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "12345")}, many)...)

		set := fdbpq.Op{
			Kind:  fdbpq.OpConfigure,
			Queue: q,
			Configure: func(s *fdbpq.Settings) {
				s.MaxBytes = 1 << 20
				s.MaxLeased = 1
			},
		}
		wantErrors(t, f.apply(set, opPush(q, 1, "x")), fdbpq.ErrSettings, nil)
		left := f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Settings
		wantEqual(t, "max_leased", left.MaxLeased, 0)
		f.check()

		// With a tenth of the usual room, one transaction cannot discard all.
		f.configure(q, discardOld(limit, 0))
		f.batcher.LimitMoved(1_000_000)

		last, tries := f.until(opPush(q, -1, "x"))
		wantError(t, last.Err, nil)
		wantEqual(t, "discarded", f.batcher.SideEffects().Discarded > many-2*limit, true)
		wantEqual(t, "several transactions discard", tries > 1, true)

		info := f.infoOf(q, 0)
		wantEqual(t, "left", info.Ready+info.Leased+info.Delayed, int64(limit))
		f.check()
	}
}

// The bytes of items that staged pops have taken are counted right, collected or not, while
// max_bytes comes and goes.
func TestBytesOfUncollectedPops(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		clock := f.setClock()
		q := f.queue("jobs")

		for n := range harness.RaceTimes(120, 40) {
			clock.advance(time.Duration(random.IntN(2000)) * time.Millisecond)
			switch random.IntN(8) {
			case 0:
				most := []int64{0, 1 << 40, 1_000}[random.IntN(3)]
				f.configure(q, func(s *fdbpq.Settings) {
					s.MaxBytes = most
					s.Discard = fdbpq.DiscardOld
				})
			case 1, 2:
				f.leave(q, clock.now(), fdbpq.Front)
			case 3:
				f.apply(op(opPopMin, q),
					fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})
			default:
				size := []int{random.IntN(20), 200_000}[random.IntN(6)/5]
				push := opPush(q, random.Int64N(3), strings.Repeat("\x00", size))
				if random.IntN(4) == 0 {
					push.Message.Headers = map[string][]string{"A": {"\x00b", ""}}
				}

				f.apply(push)
			}

			if n%10 == 0 {
				f.check()
			}
		}
	})
}

// The bytes of a queue are right while staged pops are collected and max_bytes comes and goes.
func TestBytesOfStagedPops(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
	const workers, each = 4, 40

	for range workers * each {
		f.push(q, 1, "12345")
	}

	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			p := staged.New(f.db, q)
			for range each {
				must(p.PopMin(f.ctx))
			}
		})
	}

	for range 20 {
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 0 })
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
		f.check()
	}

	wg.Wait()
	f.check()
}

// A transaction that begins to count bytes conflicts with one that takes an item not counted yet,
// in either order.
func TestCountingConflicts(t *testing.T) {
	for _, countsFirst := range []bool{false, true} {
		f := onMem(t)
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c")
		first := op(opPopMin, q)
		second := fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: discardOld(0, 100)}

		if countsFirst {
			first, second = second, first
		}
		f.wantConflict(true, func() { wantError(t, f.apply(first)[0].Err, nil) }, second)
		f.check()
	}
}

// A limit in bytes holds for the pushes of the batch that sets it.
func TestBytesOfOneBatch(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("a")
		f.apply(opPush(q, 0, "12345678"))

		set := fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q}
		set.Configure = func(s *fdbpq.Settings) { s.MaxBytes = 10 }
		wantErrors(f.T, f.apply(set, opPush(q, 0, "123")), nil, fdbpq.ErrFull)
		f.check()
	})
}

// A push that would not fit into an empty queue is refused as too large, changes nothing, and does
// not affect pushes beside it.
func TestPushesThatNeverFit(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.MaxBytes = 3, 10 })
		large := strings.Repeat("x", 11)

		chain := func(values ...string) (ops []fdbpq.Op) {
			for i, value := range values {
				op := opPush(q, 1, value)
				op.Follows = i > 0
				ops = append(ops, op)
			}
			return ops
		}

		for _, discard := range []string{fdbpq.DiscardNew, fdbpq.DiscardOld} {
			f.configure(q, func(s *fdbpq.Settings) { s.Discard = discard })
			for _, c := range []struct {
				values []string
				text   string
			}{
				{[]string{large}, "fdbpq: the message is too large: it has 11 bytes as an item, " +
					"and max_bytes of the queue is 10"},
				{
					[]string{"a", large, large},
					"item 1: fdbpq: the message is too large: it has 11 bytes",
				},
				{
					[]string{"a", "b", "c", "d"},
					"4 items, and max_items of the queue is 3: push fewer",
				},
				{[]string{"a", "b", "c", large}, "item 3: fdbpq: the message is too large"},
				{
					[]string{"12345", "67890", "1"},
					"3 items have 11 bytes, and max_bytes of the queue is 10: push fewer",
				},
			} {
				results := f.apply(append(chain(c.values...), opPush(q, 0, "fits"))...)
				for _, r := range results[:len(c.values)] {
					wantError(f.T, r.Err, fdbpq.ErrMessageTooLarge)
					wantEqual(f.T, "full", errors.Is(r.Err, fdbpq.ErrFull), false)
				}

				if err := results[0].Err; err == nil || !strings.Contains(err.Error(), c.text) {
					f.Errorf("%q: %v, want %s", c.values, err, c.text)
				}
				wantError(f.T, results[len(c.values)].Err, nil)

				f.popGroups(q, 1)
			}
		}

		// A duplicate takes no room, however large it is.
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1000 })
		once := opPush(q, 1, large)
		once.Message.MsgID = "id"

		wantErrors(f.T, f.apply(once))

		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 10 })
		r := f.apply(once)[0]
		wantEqual(f.T, "a duplicate", r.Duplicate, true)
		f.check()
	})
}
