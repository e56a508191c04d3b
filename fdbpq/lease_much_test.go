package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// muchFixture is a queue with many items and a Batcher with a clock of its own.
type muchFixture struct {
	*fixture
	q     *fdbpq.PriorityQueue
	clock *clock
}

func newMuchFixture(f *fixture) *muchFixture {
	m := &muchFixture{f, f.queue("much"), newClock(time.Now())}
	f.batcher.SetNow(m.clock.now)
	return m
}

// leasedAtOnce is how many leases of leaseAll are over at the same time.
const leasedAtOnce = 50

// leaseAll pushes n items with values of size bytes. Their priorities fall, so that the last one is
// first in the queue, and they are leased such that the first one in the queue falls due last.
func (m *muchFixture) leaseAll(n, size int) {
	m.Helper()
	for begin := 0; begin < n; begin += leasedAtOnce {
		var pushes []fdbpq.Op
		for i := begin; i < min(n, begin+leasedAtOnce); i++ {
			value := make([]byte, size)
			copy(value, fmt.Sprint(n-1-i))

			pushes = append(pushes, fdbpq.Op{
				Kind:     fdbpq.OpPush,
				Queue:    m.q,
				Priority: int64(n - 1 - i),
				Message:  fdbpq.Message{Value: value},
			})
		}

		m.apply(pushes...)
		var leases []fdbpq.Op

		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q, End: fdbpq.Back, Lease: time.Minute}
		for range pushes {
			leases = append(leases, lease)
		}
		wantErrors(m.T, m.apply(leases...))

		m.clock.advance(time.Millisecond)
	}
}

// sweepAll sweeps the queue until there is no more to do.
func (m *muchFixture) sweepAll() (sweeps int) {
	m.Helper()
	for more := true; more; sweeps++ {
		r := m.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: m.q})[0]
		wantError(m.T, r.Err, nil)
		more = r.Swept.More
	}

	return sweeps
}

// until applies an operation again until it does not fail with ErrNoRoom. It returns how often.
func (f *fixture) until(op fdbpq.Op) (r fdbpq.Result, tries int) {
	f.Helper()
	for {
		tries++
		if r = f.apply(op)[0]; !errors.Is(r.Err, fdbpq.ErrNoRoom) {
			return r, tries
		}
	}
}

// When more falls due at once than fits into a transaction, each that looks at the queue brings
// some back, in the order in which they fell due.
func TestMuchFallsDue(t *testing.T) {
	for name, first := range map[string]fdbpq.Op{
		"pop":   opPopMin,
		"lease": {Kind: fdbpq.OpLease},
		"peek":  opPeekMin,
		"len":   opLen,
		"info":  {Kind: fdbpq.OpInfo},
	} {
		for _, shape := range []struct {
			n, size int // items, and bytes of each
			share   int // that a transaction brings back: a megabyte, or a page
		}{
			{n: 100, size: 90_000, share: 11},
			{n: 60, size: 65_000, share: 15},
			{n: 3 * duePage, size: 10, share: duePage},
		} {
			t.Run(fmt.Sprint(name, "/", shape.n), func(t *testing.T) {
				m := newMuchFixture(onMem(t))
				m.leaseAll(shape.n, shape.size)
				m.clock.advance(time.Hour)
				p := m.batcher.Start(m.ctx, []fdbpq.Op{op(first, m.q)})

				results, err := p.Wait()
				wantError(t, err, nil)
				wantError(t, results[0].Err, nil)
				wantEqual(t, "filled and behind", fmt.Sprint(p.Filled(), p.Behind()),
					"[{false much}] [{false much}]")

				back := int(m.peekState().Ready)
				if first.Kind == fdbpq.OpPop || first.Kind == fdbpq.OpLease {
					back++
				}
				if back < shape.share || back > 2*shape.share {
					t.Errorf("%d items came back, want about %d", back, shape.share)
				}

				switch first.Kind {
				case fdbpq.OpLen:
					wantEqual(t, "length", int(results[0].Len), back)
				case fdbpq.OpInfo:
					wantEqual(t, "info", fmt.Sprint(results[0].Info.Ready, results[0].Info.Leased),
						fmt.Sprint(back, shape.n-back))
				default: // the first of those that fell due together, as far as they are back
					rest := (leasedAtOnce - back%leasedAtOnce) % leasedAtOnce
					wantEqual(t, "first", int(results[0].Item.ID.Priority), shape.n-back-rest)
				}
				m.check()
			})
		}
	}
}

// peekState returns the numbers of items as they are stored, without bringing anything back.
func (m *muchFixture) peekState() *fdbpq.Info {
	m.Helper()
	return m.read(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: m.q})[0].Info
}

// A sweep brings back all that is due in a few transactions, and the items are in order.
func TestMuchIsSwept(t *testing.T) {
	onEngines(t, func(f *fixture) {
		m := newMuchFixture(f)
		const n = 1500
		m.leaseAll(n, 10)
		m.clock.advance(time.Hour)

		if sweeps := m.sweepAll(); sweeps > 1+n/1000 { // a thousand or more each
			f.Errorf("%d sweeps for %d items", sweeps, n)
		}
		wantEqual(f.T, "behind", fmt.Sprint(m.peekState().Leased), "0")
		for i := range 10 {
			wantEqual(f.T, "popped", f.apply(op(opPopMin, m.q))[0].Item.ID.Priority, int64(i))
		}
		f.check()
	})
}

// What falls due comes back beside a push of the largest message, with faults of the store and
// without.
func TestMuchFallsDueWithFaults(t *testing.T) {
	for _, fault := range append(unanswered, faultkv.None, faultkv.Conflict, faultkv.Throttled) {
		t.Run(fault.String(), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			m := newMuchFixture(f.fixture)
			const n, popped = 40, 2
			m.leaseAll(n, 90_000) // 3.6 MB: several transactions
			m.clock.advance(time.Hour)
			f.faults.Next(fault, faultkv.None, fault, fault, faultkv.None, fault)

			large := fdbpq.Op{
				Kind:    fdbpq.OpPush,
				Queue:   f.queue("other"),
				Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)},
			}

			for i, r := range m.apply(op(opPopMin, m.q), large, op(opPopMin, m.q))[:3] {
				if r.Err != nil {
					t.Errorf("operation %d: %v", i, r.Err)
				}
			}

			f.calm()
			m.sweepAll()
			left, last := int64(0), int64(-1)

			for {
				r := m.apply(op(opPopMin, m.q))[0]
				if errors.Is(r.Err, fdbpq.ErrEmpty) {
					break
				}
				if r.Err != nil || r.Item.ID.Priority <= last {
					t.Fatalf("item %d after %d, %v", r.Item.ID.Priority, last, r.Err)
				}

				left, last = left+1, r.Item.ID.Priority
			}
			wantEqual(t, "items left after two pops", left, int64(n-popped))
			m.check()
		})
	}
}

// Large items that a transaction has no room to lease, extend or give back stay where they are,
// and their operations say so.
func TestMuchIsLeased(t *testing.T) {
	const n, size = 150, 90_000
	m := newMuchFixture(onMem(t))
	m.leaseAll(n, size)
	m.clock.advance(time.Hour)
	m.sweepAll()

	wantEqual(t, "ready", m.apply(op(opLen, m.q))[0].Len, n)

	var tokens []fdbpq.Token
	each := func(what string, ops []fdbpq.Op) {
		t.Helper()
		for len(ops) > 0 {
			fit := 0
			for i, r := range m.apply(ops...) {
				switch {
				case r.Err == nil && i != fit:
					t.Fatalf("%s: %d after one that did not fit", what, i)
				case r.Err == nil:
					fit++
				default:
					wantError(t, r.Err, fdbpq.ErrNoRoom)
				}
				if r.Err == nil && ops[i].Kind == fdbpq.OpLease {
					tokens = append(tokens, r.Lease.Token)
				}
			}
			if fit < 50 && fit < len(ops) {
				t.Fatalf("%s: only %d fit", what, fit)
			}

			ops = ops[fit:]
		}
	}

	ops := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: m.q}}, n)
	each("lease", ops)

	for _, kind := range []fdbpq.OpKind{fdbpq.OpExtend, fdbpq.OpNak} {
		ops = nil
		for _, token := range tokens {
			ops = append(ops, fdbpq.Op{Kind: kind, Queue: m.q, Token: token})
		}

		each(fmt.Sprint("operation ", kind), ops)
	}
	for i, token := range tokens {
		wantEqual(t, "item leased", token.ID.Priority, int64(i))
	}
	wantEqual(t, "ready again", m.apply(op(opLen, m.q))[0].Len, n)
}

// A queue where much falls due does not take the room of one where little does.
func TestMuchFallsDueBesideOtherQueues(t *testing.T) {
	onEngines(t, func(f *fixture) {
		m := newMuchFixture(f)
		m.leaseAll(40, 90_000)
		other := f.queue("other")
		f.push(other, 0, "x")
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: other, Lease: time.Minute})
		m.clock.advance(time.Hour)
		results := f.apply(op(opPopMin, m.q), op(opPopMin, other), op(opLen, f.queue("much")),
			op(opPeekMin, m.q))

		for i, r := range results {
			wantError(f.T, r.Err, nil)
			if i == 1 {
				wantEqual(f.T, "popped", string(r.Item.Value), "x")
			}
		}
		f.check()
	})
}

// A value of another program that is too long for the record of a lease can only be popped. A
// slightly shorter one is leased, and its record has no room for a reason.
func TestLeasesOfLongRecipeItems(t *testing.T) {
	for _, size := range []int{
		kv.MaxValueSize - 2000, fdbpq.MaxHeldValue, fdbpq.MaxHeldValue + 1, kv.MaxValueSize,
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			f := onMem(t)
			clock := f.setClock()
			q := f.queue("jobs")

			f.configure(q, func(s *fdbpq.Settings) {
				s.MaxDeliver = 3
				s.Backoff = []time.Duration{time.Hour}
			})

			space := tuple.NewSubspace(tuple.Tuple{f.priority, "jobs"})
			f.foreign(space, tuple.Tuple{"i", int64(1), int64(0)}, string(make([]byte, size)))
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}
			r := f.apply(lease)[0]

			if size > fdbpq.MaxHeldValue {
				wantError(t, r.Err, fdbpq.ErrItemTooLarge)
				if text := r.Err.Error(); strings.Contains(text, "max_bytes") ||
					!strings.Contains(text, "another program wrote it") {
					t.Errorf("the error is %q", text)
				}
				wantEqual(t, "popped", len(f.apply(op(opPopMin, q))[0].Item.Value), size)

				return
			}

			nak := fdbpq.Op{
				Kind:   fdbpq.OpNak,
				Queue:  q,
				Delay:  time.Hour,
				Reason: strings.Repeat("r", fdbpq.MaxNakReason),
			}

			for range 2 {
				wantError(t, r.Err, nil)

				nak.Token = r.Lease.Token
				wantError(t, f.apply(nak)[0].Err, nil)

				clock.advance(time.Hour)
				r = f.apply(lease)[0]
			}

			clock.advance(2 * time.Hour) // the last lease is over
			wantError(t, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
			wantEqual(t, "dead", len(f.apply(op(opPopMin, q.DeadLetters()))[0].Item.Value), size)
			f.check()
		})
	}
}

// Leases that are over count for max_leased until their items are back, and no longer.
func TestLateLeasesAndMaxLeased(t *testing.T) {
	m := newMuchFixture(onMem(t))
	m.leaseAll(40, 90_000) // more than come back in one transaction
	m.configure(m.q, func(s *fdbpq.Settings) { s.MaxLeased = 1 })
	m.clock.advance(time.Hour)

	r, tries := m.until(fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q})
	wantError(t, r.Err, nil)
	if tries < 2 {
		t.Error("all came back in one transaction, so this proves nothing")
	}

	r = m.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q})[0]
	wantError(t, r.Err, fdbpq.ErrMaxLeased)
	wantEqual(t, "to be tried again", errors.Is(r.Err, fdbpq.ErrNoRoom), false)
	m.check()
}

// A push with a unique key waits for due items only if an item has the key, because that item may
// expire.
func TestUniquePushToLateQueue(t *testing.T) {
	for name, delay := range map[string]time.Duration{"ready": 0, "delayed": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			push := withTTL(opPush(m.q, 1, "x"), time.Minute)
			pushes := slices.Repeat([]fdbpq.Op{push}, 2*duePage)
			m.apply(pushes...)

			unique := fdbpq.Op{
				Kind:     fdbpq.OpPush,
				Queue:    m.q,
				Priority: 2,
				Message:  fdbpq.Message{Unique: "key"},
				TTL:      2 * time.Minute,
				Delay:    delay,
			}

			first := m.apply(unique)[0]
			wantError(t, first.Err, nil)

			m.clock.advance(time.Hour)
			wantError(t, m.apply(opPushOnce(m.q, "", "free"))[0].Err, nil)

			second, _ := m.until(unique)
			wantError(t, second.Err, nil)
			wantEqual(t, "duplicate", second.Duplicate, false)
			wantEqual(t, "duplicate of the second", m.apply(unique)[0].Item.ID, second.Item.ID)
			m.check()
		})
	}
}

// A queue with a limit takes pushes as long as there is room. Whether it is full is known once all
// is back.
func TestLimitedPushToLateQueue(t *testing.T) {
	const (
		removed = 9 * duePage // by a transaction
		n       = removed + duePage
	)
	for name, set := range map[string]func(*fdbpq.Settings){
		"max_items": func(s *fdbpq.Settings) { s.MaxItems = n },
		"max_bytes": func(s *fdbpq.Settings) { s.MaxBytes = 10 * n },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			m.configure(m.q, set)
			pushes := slices.Repeat([]fdbpq.Op{withTTL(opPush(m.q, 1, "x"), time.Minute)}, n)
			m.apply(pushes...)

			refused := m.apply(opPush(m.q, 1, "yyyyyyyyyy"))[0].Err
			wantError(t, refused, fdbpq.ErrFull)
			wantEqual(t, "to be tried again", errors.Is(refused, fdbpq.ErrNoRoom), false)

			m.clock.advance(time.Hour)

			// What has expired makes room, here for fewer than are pushed.
			pushes = slices.Repeat([]fdbpq.Op{opPush(m.q, 1, "yyyyyyyyyy")}, removed+1)

			for i := range pushes {
				pushes[i].Follows = i > 0
			}

			refused = m.apply(pushes...)[0].Err
			wantError(t, refused, fdbpq.ErrFull)
			wantError(t, refused, fdbpq.ErrNoRoom)
			wantError(t, m.apply(pushes...)[0].Err, nil)
			m.check()
		})
	}
}

// Whether something is due in a full queue is read before the batch writes to another.
func TestLimitedPushesToSeveralQueues(t *testing.T) {
	onStores(t, func(f *fixture) {
		clock := f.setClock()
		a, b := f.queue("a"), f.queue("b")

		for _, q := range []*fdbpq.PriorityQueue{a, b} {
			f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 1 })
		}

		f.apply(withTTL(opPush(b, 1, "x"), time.Minute))
		results := f.apply(opPush(a, 1, "x"), opPush(b, 1, "y"))
		wantErrors(f.T, results, nil, fdbpq.ErrFull)

		f.apply(op(opPopMin, a))
		clock.advance(time.Hour)
		wantErrors(f.T, f.apply(opPush(a, 1, "x"), opPush(b, 1, "y")))
		f.check()
	})
}

// Very many items that have expired and are not removed yet are not served. What lies behind them
// is, after a few transactions.
func TestLateExpired(t *testing.T) {
	for name, first := range map[string]fdbpq.Op{
		"pop":   opPopMin,
		"lease": {Kind: fdbpq.OpLease},
		"peek":  opPeekMin,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			const n = 2500
			var pushes []fdbpq.Op

			for i := range n { // those in front expire last
				push := fdbpq.Op{
					Kind:     fdbpq.OpPush,
					Queue:    m.q,
					Priority: int64(i),
					TTL:      2*time.Hour - time.Duration(i)*time.Second,
				}

				if i%100 == 0 {
					push.Message.Value = make([]byte, 5000)
					push.Message.Headers = map[string][]string{"A": {"b"}}
				}

				pushes = append(pushes, push)
			}

			m.apply(pushes...)
			m.push(m.q, n, "live")
			m.clock.advance(3 * time.Hour)

			r, tries := m.until(op(first, m.q))
			wantEqual(t, fmt.Sprint(name, ", ", r.Err), string(r.Item.Value), "live")
			if tries < 2 || tries > 20 {
				t.Errorf("after %d transactions", tries)
			}
			m.check()
		})
	}
}

// A late item can be inspected and settled as before, unless it has expired.
func TestLateItemsByID(t *testing.T) {
	m := newMuchFixture(onMem(t))
	var pushes []fdbpq.Op

	for i := range 2 * duePage {
		pushes = append(pushes,
			withTTL(opPush(m.q, 1, "x"), time.Minute+time.Duration(i)*time.Second))
	}

	results := m.apply(pushes...)
	m.clock.advance(time.Hour)
	last := results[len(results)-1].Item.ID

	for _, o := range []fdbpq.Op{{Kind: fdbpq.OpGet}, {Kind: fdbpq.OpMove, Priority: 5}} {
		o.Queue, o.ID = m.q, last
		wantError(t, m.applyAt(m.clock.now(), o)[0].Err, fdbpq.ErrNotFound)
	}
	m.check()
}

// A batch of pops fits into its transaction however many expired items lie between the live ones.
func TestLatePopsAmongExpired(t *testing.T) {
	const live, dead = 20, 250
	m := newMuchFixture(onMem(t))
	n := 0

	for range live {
		var pushes []fdbpq.Op
		for range dead { // those in front expire last
			n++
			pushes = append(pushes, fdbpq.Op{
				Kind:     fdbpq.OpPush,
				Queue:    m.q,
				Priority: int64(n),
				TTL:      24*time.Hour - time.Duration(n)*time.Second,
			})
		}

		n++
		m.apply(append(pushes, opPush(m.q, int64(n), "live"))...)
	}

	m.clock.advance(48 * time.Hour)
	pops, tries := slices.Repeat([]fdbpq.Op{op(opPopMin, m.q)}, live), 1

	for ; m.apply(pops...)[0].Err != nil; tries++ {
	}
	wantEqual(t, "transactions", tries, 3)
	m.check()
}
