package fdbpq_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A batch reads few large items beyond those that it has room to bury.
func TestReadsOfManyBurials(t *testing.T) {
	n := harness.RaceTimes(30, 12) // 1 MB each; a transaction holds 10 MB
	f := newRoundsFixture(t, 1, false)
	q := f.queues[0]
	var terms []fdbpq.Op
	for range n {
		f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(1_000_000)})
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
		terms = append(terms, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: r.Lease.Token})
	}
	f.store.Take()
	buried := 0
	for _, r := range f.apply(terms...) {
		if r.Err == nil {
			buried++
		} else {
			wantError(t, r.Err, fdbpq.ErrNoRoom)
		}
	}
	if buried < 8 {
		t.Errorf("%d of %d were buried", buried, n)
	}
	// Each item and its first parts, the settings, and those and the ends of the dead-letter queue; then the
	// rest of those buried, and of one.
	if reads := f.store.Take()[0].Reads; reads > 2*n+4+buried+1 {
		t.Errorf("%d reads to bury %d of %d", reads, buried, n)
	}
}

// largeMessage has as many bytes as a message may have.
func largeMessage(n int) fdbpq.Message {
	m := fdbpq.Message{Headers: map[string][]string{"Size": {fmt.Sprint(n)}}}
	m.Value = pattern(n-len("Size")-len(fmt.Sprint(n))-4, n)
	return m
}

// Items of all sizes are buried, acknowledged or when their leases run out, also many of them,
// and beside other operations.
func TestLargeDeadLetters(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		q, dead := f.queue("jobs"), f.queue("jobs-dead")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		ends := []fdbpq.Op{{Kind: fdbpq.OpTerm, Reason: "no"}, {Kind: fdbpq.OpNak, Reason: "no"}, {}}
		largest := fdbpq.MaxMessageSize
		if f.format == fdbpq.TupleValues {
			largest = 5_000_000
		}
		for _, size := range []int{100, 89_000, 200_000, 600_000, largest} {
			m := largeMessage(size)
			for _, end := range ends {
				wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 7, Message: m})[0].Err, nil)
				r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})[0]
				wantError(f.T, r.Err, nil)
				want := fdbpq.DeadLetter{Queue: "jobs", Reason: "max_deliver", Deliveries: 1}
				switch end.Kind {
				case fdbpq.OpTerm:
					want.Reason = "no"
				case fdbpq.OpNak:
					want.Error = "no"
				}
				if end.Queue, end.Token = q, r.Lease.Token; end.Kind != 0 {
					wantError(f.T, f.apply(end)[0].Err, nil)
				} else {
					clock.advance(time.Minute)
					wantError(f.T, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
				}
				f.wantDead(dead, m, want)
			}
		}
		f.check()
	})
}

// Many items die at once, large ones among them, in as many transactions as that takes. A Pending says
// which queue got them.
func TestManyDie(t *testing.T) {
	m := newMuchFixture(onMem(t))
	m.configure(m.q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
	m.leaseAll(60, 90_000)
	var leases []fdbpq.Op
	for n := range 3 {
		m.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Priority: int64(1000 + n), Message: largeMessage(3_000_000)})
		leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q})
	}
	m.apply(leases...)
	m.clock.advance(time.Hour)
	large := fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.queue("other"), Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)}}
	p := m.batcher.Start(m.ctx, []fdbpq.Op{op(opPopMin, m.q), large, op(opLen, m.q)})
	results := must(p.Wait())
	wantError(t, results[0].Err, fdbpq.ErrEmpty)
	if got := p.Filled(); !slices.Contains(got, fdbpq.QueueName{Name: "much-dead"}) {
		t.Errorf("dead letters went to %v", got)
	}
	m.sweepAll()
	wantEqual(t, "dead", m.length(m.q.DeadLetters()), int64(63))
	for n := range int64(63) {
		if n >= 60 {
			n += 940
		}
		item, err := m.take(m.q.DeadLetters().PopMin)
		if err != nil || item.ID.Priority != n {
			t.Fatalf("item %d is %d, %v", n, item.ID.Priority, err)
		}
	}
}

// Many small items die at once. A transaction has room to bury some of those that fall due, and leaves the
// others to the next ones instead of reading them as well.
func TestManySmallItemsDie(t *testing.T) {
	const n = 1000
	f := newRoundsFixture(t, 1, false)
	m := newMuchFixture(f.fixture)
	m.configure(m.q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
	m.leaseAll(n, 10)
	m.clock.advance(time.Hour)
	f.store.Take()
	r, tries := m.until(op(opPopMin, m.q))
	wantError(t, r.Err, fdbpq.ErrEmpty)
	for i, cost := range f.store.Take() {
		if cost.Rounds > 12 { // of growing size, see returnHeld
			t.Errorf("transaction %d takes %d rounds of reads", i, cost.Rounds)
		}
	}
	if tries < 4 || tries > 20 {
		t.Errorf("%d transactions", tries)
	}
	wantEqual(t, "dead", m.length(m.q.DeadLetters()), int64(n))
	m.check()
}

// In a transaction of the caller's, a dying item that is too large for it waits for a Batcher.
func TestLargeItemDiesPlainly(t *testing.T) {
	m := newMuchFixture(onMem(t))
	m.configure(m.q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
	m.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: m.q, Message: largeMessage(3_000_000)})
	m.push(m.q, 5, "b")
	m.push(m.q, 6, "c")
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q, Lease: time.Second}
	m.applyAt(m.clock.now(), lease, lease)
	m.clock.advance(time.Hour)
	wantEqual(t, "popped", string(m.applyAt(m.clock.now(), op(opPopMin, m.q))[0].Item.Value), "c")
	wantEqual(t, "dead", m.length(m.q.DeadLetters()), int64(1))
	m.check()
	wantError(t, m.apply(op(opPopMin, m.q))[0].Err, fdbpq.ErrEmpty)
	wantEqual(t, "dead", m.length(m.q.DeadLetters()), int64(2))
}

// Burials do not fit beside the largest push: the token still holds then, and the next attempt works.
func TestNoRoomForBurial(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(1_000_000)})
	token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
	term := fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token}
	push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: f.queue("other"), Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)}}
	results := f.apply(push, term)
	wantErrors(t, results, nil, fdbpq.ErrNoRoom)
	f.check()
	wantError(t, f.apply(term)[0].Err, nil)
	wantError(t, f.apply(term)[0].Err, fdbpq.ErrLeaseLost)
	wantEqual(t, "dead", f.length(q.DeadLetters()), int64(1))
}
