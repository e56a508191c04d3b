package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Leases that are over count for max_leased until they are back, and then no more.
func TestLateLeasesAndMaxLeased(t *testing.T) {
	m := newMuchFixture(onMem(t))
	m.leaseAll(40, 90_000)
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

// A push with a unique key need not wait for what is due, unless the key is that of something which expires with it; and
// that frees it.
func TestUniquePushToLateQueue(t *testing.T) {
	for name, delay := range map[string]time.Duration{"ready": 0, "delayed": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			pushes := slices.Repeat([]fdbpq.Op{withTTL(opPush(m.q, 1, "x"), time.Minute)}, 2*duePage)
			m.apply(pushes...)
			unique := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: 2, Message: fdbpq.Message{Unique: "key"}, TTL: 2 * time.Minute, Delay: delay}
			first := m.apply(unique)[0]
			wantError(t, first.Err, nil)
			m.clock.advance(time.Hour)
			second := m.apply(unique)[0]
			wantError(t, second.Err, nil)
			wantEqual(t, "duplicate", second.Duplicate, false)
			wantEqual(t, "duplicate of the second", m.apply(unique)[0].Item.ID, second.Item.ID)
			m.check()
		})
	}
}

// A queue with a limit takes pushes as long as there is room. Whether it is full is known once all is back.
func TestLimitedPushToLateQueue(t *testing.T) {
	const n = 3 * duePage
	for name, set := range map[string]func(*fdbpq.Settings){
		"max_items": func(s *fdbpq.Settings) { s.MaxItems = n },
		"max_bytes": func(s *fdbpq.Settings) { s.MaxBytes = 10 * n },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			pushes := slices.Repeat([]fdbpq.Op{withTTL(opPush(m.q, 1, "x"), time.Minute)}, n)
			m.apply(pushes...)
			m.configure(m.q, set)
			refused := m.apply(opPush(m.q, 1, "yyyyyyyyyy"))[0].Err
			wantError(t, refused, fdbpq.ErrFull)
			wantEqual(t, "to be tried again", errors.Is(refused, fdbpq.ErrNoRoom), false)
			m.clock.advance(time.Hour)
			// What has expired makes room, here for fewer than are pushed.
			pushes = slices.Repeat([]fdbpq.Op{opPush(m.q, 1, "yyyyyyyyyy")}, duePage+1)
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

// Very many items that have expired and are not removed yet are not served. What lies behind them is, after a few
// transactions.
func TestLateExpired(t *testing.T) {
	for name, first := range map[string]fdbpq.Op{"pop": opPopMin, "lease": {Kind: fdbpq.OpLease}, "peek": opPeekMin} {
		t.Run(name, func(t *testing.T) {
			m := newMuchFixture(onMem(t))
			const n = 2500
			var pushes []fdbpq.Op
			for i := range n { // those in front expire last
				push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: int64(i), TTL: 2*time.Hour - time.Duration(i)*time.Second}
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

// What is late can be inspected and settled as what it still is, but for items that have expired.
func TestLateItemsByID(t *testing.T) {
	m := newMuchFixture(onMem(t))
	var pushes []fdbpq.Op
	for i := range 2 * duePage {
		pushes = append(pushes, withTTL(opPush(m.q, 1, "x"), time.Minute+time.Duration(i)*time.Second))
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

// However many expired items lie between those that live, a batch of pops fits into its transaction.
func TestLatePopsAmongExpired(t *testing.T) {
	const live, dead = 20, 250
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
	results, err := m.batcher.Apply(m.ctx, slices.Repeat([]fdbpq.Op{op(opPopMin, m.q)}, live))
	wantError(t, err, nil)
	wantError(t, results[0].Err, nil)
	wantError(t, results[live-1].Err, fdbpq.ErrNoRoom)
	m.check()
}
