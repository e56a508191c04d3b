package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// newLateFixture is a queue where so much falls due that each batch brings back a part of it: 40 items,
// of which the first is the last to fall due.
func newLateFixture(f *fixture) *muchFixture {
	m := newMuchFixture(f)
	m.leaseAll(40, 90_000)
	m.clock.advance(time.Hour)
	f.batcher.LimitCatchUp(time.Nanosecond)
	return m
}

// until applies an operation again until it does not fail with ErrBehind. It returns how often it did.
func (m *muchFixture) until(o fdbpq.Op) (r fdbpq.Result, behind int) {
	m.Helper()
	o.Queue = m.q
	for ; ; behind++ {
		if r = m.apply(o)[0]; !errors.Is(r.Err, fdbpq.ErrBehind) {
			return r, behind
		}
	}
}

// Where too many items that are not due come before the first that is, pops and peeks wait until all that is due is
// back. From the other end they do not.
func TestWalkGivesUp(t *testing.T) {
	for name, first := range map[string]fdbpq.Op{"pop": opPopMin, "lease": {Kind: fdbpq.OpLease}, "peek": opPeekMin} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			for range 100 {
				delayed := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: -1, Message: fdbpq.Message{Value: make([]byte, 90_000)}, Delay: fdbpq.MaxDelay}
				wantError(t, m.apply(delayed)[0].Err, nil)
			}
			m.leaseAll(40, 90_000)
			m.clock.advance(time.Hour)
			m.batcher.LimitCatchUp(time.Nanosecond)
			r, behind := m.until(opPopMax)
			wantEqual(t, "behind, from the other end", behind, 0)
			wantEqual(t, "last", r.Item.ID.Priority, 39)
			r, behind = m.until(first)
			wantError(t, r.Err, nil)
			wantEqual(t, "first", r.Item.ID.Priority, 0)
			if behind == 0 {
				t.Error("nothing waited, so this proves nothing")
			}
			m.check()
		})
	}
}

// Leases that are over do not count for max_leased.
func TestLateLeasesAndMaxLeased(t *testing.T) {
	m := newLateFixture(onMem(t))
	m.configure(m.q, func(s *fdbpq.Settings) { s.MaxLeased = 1 })
	r, _ := m.until(fdbpq.Op{Kind: fdbpq.OpLease})
	wantError(t, r.Err, nil)
	wantEqual(t, "first", r.Item.ID.Priority, 0)
	r, _ = m.until(fdbpq.Op{Kind: fdbpq.OpLease})
	wantError(t, r.Err, fdbpq.ErrMaxLeased)
	m.check()
}

// Leases that are over and wait out a backoff are known to whoever waits, before it is said that there is nothing.
func TestLateLeasesAndBackoff(t *testing.T) {
	m := newMuchFixture(onMem(t))
	m.leaseAll(40, 90_000)
	m.configure(m.q, func(s *fdbpq.Settings) { s.Backoff = []time.Duration{2 * time.Hour} })
	m.clock.advance(time.Hour)
	m.batcher.LimitCatchUp(time.Nanosecond)
	plain, behind := m.until(opPopMin)
	wantError(t, plain.Err, fdbpq.ErrEmpty)
	wantEqual(t, "behind", behind, 0)
	r, _ := m.until(fdbpq.Op{Kind: fdbpq.OpPop, Waits: true})
	wantError(t, r.Err, fdbpq.ErrEmpty)
	if wait := r.NextDue.Sub(m.clock.now()); wait < time.Hour || wait > 2*time.Hour {
		t.Errorf("the next item is due in %v", wait)
	}
}

// A push with a unique key waits until all that is due is back, and holds up no others meanwhile.
func TestUniquePushToLateQueue(t *testing.T) {
	m := newLateFixture(onMem(t))
	push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: 1000, Message: fdbpq.Message{Unique: "key"}}
	results := m.apply(push, op(opPopMin, m.q))
	wantError(t, results[0].Err, fdbpq.ErrBehind)
	wantError(t, results[1].Err, nil)
	r, _ := m.until(push)
	wantError(t, r.Err, nil)
	m.check()
}

// A queue with a limit takes pushes as long as there is room. Whether it is full is known once all is back.
func TestLimitedPushToLateQueue(t *testing.T) {
	for name, set := range map[string]func(*fdbpq.Settings){
		"max_items": func(s *fdbpq.Settings) { s.MaxItems = 41 },
		"max_bytes": func(s *fdbpq.Settings) { s.MaxBytes = 40*90_000 + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			m.leaseAll(40, 90_000)
			m.configure(m.q, set)
			m.apply(op(opLen, m.q), fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: 1000, TTL: time.Minute}) // counts the bytes
			m.clock.advance(time.Hour)
			m.batcher.LimitCatchUp(time.Nanosecond)
			push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: 1000, Message: message("x")}
			results := m.apply(push, op(opPopMin, m.q))
			if name == "max_items" {
				wantError(t, results[0].Err, fdbpq.ErrBehind)
			} else {
				wantError(t, results[0].Err, nil)
			}
			wantError(t, results[1].Err, nil)
			r, _ := m.until(push)
			wantError(t, r.Err, nil)
			m.check()
		})
	}
}

// Very many items that have expired and are not removed yet are not served.
func TestLateExpired(t *testing.T) {
	for name, first := range map[string]fdbpq.Op{"pop": opPopMin, "lease": {Kind: fdbpq.OpLease}, "peek": opPeekMin} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			var pushes []fdbpq.Op
			for i := range 3000 { // those in front expire last
				pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: int64(i), TTL: time.Hour - time.Duration(i)*time.Second/2})
			}
			m.apply(pushes...)
			m.push(m.q, 5000, "live")
			m.clock.advance(2 * time.Hour)
			m.batcher.LimitCatchUp(time.Nanosecond)
			r, behind := m.until(first)
			wantEqual(t, fmt.Sprint(name, ", ", r.Err), string(r.Item.Value), "live")
			wantEqual(t, "behind", behind, 1)
			m.check()
		})
	}
}

// What a pop took from where it was held goes back to its place if nobody received it.
func TestLatePopGoesBack(t *testing.T) {
	m := newLateFixture(onMem(t))
	r := m.apply(op(opPopMin, m.q))[0]
	wantError(t, r.Err, nil)
	wantError(t, m.apply(fdbpq.Op{Kind: fdbpq.OpRestore, Queue: m.q, Item: &r.Item})[0].Err, nil)
	again := m.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q})[0]
	wantEqual(t, "id", again.Item.ID, r.Item.ID)
	wantEqual(t, "deliveries", again.Lease.Deliveries, 2)
	m.check()
}

// However many expired items lie between those that live, a batch of pops fits into its transaction.
func TestLatePopsAmongExpired(t *testing.T) {
	const live, dead = 20, 500
	m := newMuchFixture(onMem(t))
	n := 0
	for range live {
		var pushes []fdbpq.Op
		for range dead { // those in front expire last
			n++
			pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: int64(n), TTL: 24*time.Hour - time.Duration(n)*time.Second})
		}
		n++
		m.apply(append(pushes, opPush(m.q, int64(n), "live"))...)
	}
	m.clock.advance(48 * time.Hour)
	m.batcher.LimitCatchUp(time.Nanosecond)
	results, err := m.batcher.Apply(m.ctx, slices.Repeat([]fdbpq.Op{op(opPopMin, m.q)}, live))
	wantError(t, err, nil)
	wantError(t, results[live-1].Err, fdbpq.ErrBehind)
}
