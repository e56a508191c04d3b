package fdbpq_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/race"
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

// leaseAll pushes items with falling priorities, so that the last one is first, and leases
// them such that the first one falls due last.
func (m *muchFixture) leaseAll(n, size int) {
	m.Helper()
	for begin := 0; begin < n; begin += 50 {
		var pushes []fdbpq.Op
		for i := begin; i < min(n, begin+50); i++ {
			value := make([]byte, size)
			copy(value, fmt.Sprint(n-1-i))
			pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: int64(n - 1 - i), Message: fdbpq.Message{Value: value}})
		}
		m.apply(pushes...)
		var leases []fdbpq.Op
		for range pushes {
			leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q, End: fdbpq.Back, Lease: time.Minute})
		}
		for _, r := range m.apply(leases...) {
			if r.Err != nil {
				m.Fatal(r.Err)
			}
		}
		m.clock.advance(time.Millisecond)
	}
}

// Very many large items that fall due at once do not fit into one transaction. They come back
// nevertheless, and in order, even if the first one is the last to fall due.
func TestMuchFallsDue(t *testing.T) {
	for name, first := range map[string]fdbpq.Op{"pop": opPopMin, "lease": {Kind: fdbpq.OpLease}, "peek": opPeekMin, "len": opLen} {
		for _, shape := range []struct{ n, size int }{{race.Times(1000, 300), 90_000}, {100, 65_000}, {3 * fdbpq.DuePage, 10}} {
			t.Run(fmt.Sprint(name, "/", shape.n), func(t *testing.T) {
				m := newMuchFixture(onMem(t))
				m.leaseAll(shape.n, shape.size)
				m.clock.advance(time.Hour)
				r := m.apply(op(first, m.q))[0]
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if first.Kind == fdbpq.OpLen {
					wantEqual(t, "length", int(r.Len), shape.n)
				} else {
					wantEqual(t, "first", r.Item.ID.Priority, 0)
				}
			})
		}
	}
}

// The same with faults, and with a push of the largest message in the same batch.
func TestMuchFallsDueWithFaults(t *testing.T) {
	for _, fault := range append(unanswered, faultkv.Conflict, faultkv.Throttled) {
		t.Run(fault.String(), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			m := newMuchFixture(f.fixture)
			m.leaseAll(100, 90_000)
			m.clock.advance(time.Hour)
			f.faults.Next(fault, faultkv.None, fault, fault, faultkv.None, fault)
			large := fdbpq.Op{Kind: fdbpq.OpPush, Queue: f.queue("other"), Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)}}
			for i, r := range m.apply(op(opPopMin, m.q), large, op(opPopMin, m.q))[:3] {
				if r.Err != nil {
					t.Errorf("operation %d: %v", i, r.Err)
				}
			}
			f.calm()
			for i := int64(2); i < 100; i++ {
				if r := m.apply(op(opPopMin, m.q))[0]; r.Err != nil || r.Item.ID.Priority != i {
					t.Fatalf("item %d is %d, %v", i, r.Item.ID.Priority, r.Err)
				}
			}
		})
	}
}

// A push of the largest message leaves room for what is due.
func TestLargestPushBesideWhatIsDue(t *testing.T) {
	for _, size := range []int{10, 90_000} {
		m := newMuchFixture(onMem(t))
		m.leaseAll(20, size)
		m.clock.advance(time.Hour)
		large := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: 10, Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)}}
		for i, r := range m.apply(large, op(opPopMin, m.q), op(opPopMax, m.q)) {
			if r.Err != nil {
				t.Errorf("operation %d: %v", i, r.Err)
			}
		}
	}
}

// Methods that work in the caller's transaction bring back what that has room for, and find the first item all
// the same.
func TestMuchFallsDuePlainly(t *testing.T) {
	m := newMuchFixture(onMem(t))
	m.clock.advance(-2 * time.Hour)
	n := race.Times(1000, 300)
	m.leaseAll(n, 90_000)
	for want := range int64(n) {
		item, err := m.take(m.q.PopMin)
		if err != nil || item.ID.Priority != want {
			t.Fatalf("item %d, %v: want %d", item.ID.Priority, err, want)
		}
	}
	_, err := m.take(m.q.PopMin)
	wantError(t, err, fdbpq.ErrEmpty)
}

// A transaction has no room to lease, extend or give back very many large items. Those that
// do not fit are told so, and stay.
func TestMuchIsLeased(t *testing.T) {
	const n, size = 150, 90_000
	m := newMuchFixture(onMem(t))
	m.leaseAll(n, size)
	m.clock.advance(time.Hour)
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
	var ops []fdbpq.Op
	for range n {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q})
	}
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

// With a limit, a queue where very much falls due does not hold up the operations of others in
// its batch, nor its own pops, which are served in order. It is not counted before all has come back.
func TestMuchFallsDueBesideOtherQueues(t *testing.T) {
	onEngines(t, func(f *fixture) {
		m := newMuchFixture(f)
		m.leaseAll(40, 90_000)
		m.clock.advance(time.Hour)
		f.batcher.LimitCatchUp(time.Nanosecond) // one transaction at a time
		other := f.queue("other")
		same := f.queue("much") // another object for the same queue
		lease := fdbpq.Op{Kind: fdbpq.OpLease, End: fdbpq.Back, Queue: m.q, Lease: fdbpq.MaxLease}
		for n := 0; ; n++ {
			f.push(other, 0, "x")
			results := f.apply(op(opPopMin, m.q), op(opPopMin, other), op(opLen, same), fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: 100},
				lease, op(opPopMin, m.q), op(opPeekMin, m.q))
			for i, r := range results {
				if i != 2 {
					wantError(t, r.Err, nil)
				}
			}
			// The push of each batch is what it leases.
			for i, want := range map[int]int{0: 2 * n, 4: 100, 5: 2*n + 1, 6: 2*n + 2} {
				wantEqual(t, fmt.Sprint("item of operation ", i), results[i].Item.ID.Priority, int64(want))
			}
			if results[2].Err == nil {
				if n == 0 {
					t.Error("all of it came back in one transaction, so this proves nothing")
				}
				wantEqual(t, "length", int(results[2].Len), 40-2*n)
				f.check()
				return
			}
			wantError(t, results[2].Err, fdbpq.ErrBehind)
		}
	})
}

// A value that another program wrote can be so long that there is no room for the record of a
// lease, or for a reason.
func TestLeasesOfLongRecipeItems(t *testing.T) {
	for _, size := range []int{kv.MaxValueSize - 2000, fdbpq.MaxHeldValue, fdbpq.MaxHeldValue + 1, kv.MaxValueSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			f := onMem(t)
			clock := newClock(time.Now())
			f.batcher.SetNow(clock.now)
			q := f.queue("jobs")
			f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver, s.Backoff = 3, []time.Duration{time.Hour} })
			f.foreign(tuple.NewSubspace(tuple.Tuple{f.priority, "jobs"}), tuple.Tuple{"i", int64(1), int64(0)}, string(make([]byte, size)))
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}
			r := f.apply(lease)[0]
			if size > fdbpq.MaxHeldValue {
				wantError(t, r.Err, fdbpq.ErrItemTooLarge)
				if text := r.Err.Error(); strings.Contains(text, "max_bytes") || !strings.Contains(text, "another program wrote it") {
					t.Errorf("the error is %q", text)
				}
				wantEqual(t, "popped", len(f.apply(op(opPopMin, q))[0].Item.Value), size)
				return
			}
			nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Delay: time.Hour, Reason: strings.Repeat("r", fdbpq.MaxNakReason)}
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
