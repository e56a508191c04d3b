package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The name of a dead-letter queue is not too long, and not that of its own queue, however often
// items die.
func TestDeadLetterNames(t *testing.T) {
	die := func(f *fixture, q *fdbpq.PriorityQueue) (to string) {
		f.push(q, 1, "a")
		token := f.leaseSome(q, 1, time.Minute)[0]
		p := f.batcher.Start(f.ctx, []fdbpq.Op{{Kind: fdbpq.OpTerm, Queue: q, Token: token}})
		wantErrors(t, must(p.Wait()))
		return p.Filled()[0].Name
	}
	for name, want := range map[string]string{
		"jobs":                             "jobs-dead",
		"jobs-dead":                        "jobs-dead-dead",
		strings.Repeat("x", 123):           strings.Repeat("x", 123) + "-dead",
		strings.Repeat("x", 128):           strings.Repeat("x", 123) + "-dead",
		strings.Repeat("x", 123) + "-dead": strings.Repeat("x", 118) + "-dead-dead",
		"a" + strings.Repeat("ä", 63):      "a" + strings.Repeat("ä", 61) + "-dead",
	} {
		f := onMem(t)
		wantEqual(t, "name", die(f, f.queue(name)), want)
		f.wantListed(name, slices.Sorted(slices.Values([]string{name, want}))...)
		item, err := f.take(f.queue(want).PopMin)
		if err != nil || item.DeadLetter.Queue != name {
			t.Errorf("%q: %+v, %v", want, item, err)
		}
	}
	for _, name := range []string{strings.Repeat("x", 128), "x", "é" + strings.Repeat("ä", 63)} {
		f := onMem(t)
		q := f.queue(name)
		for range 60 { // until the names are as long as they can be, and some more
			next := q.DeadLetters()
			to := die(f, q)
			if f.length(q) != 0 || f.length(next) != 1 {
				t.Fatalf("%v: %d are left, %d are dead", to, f.length(q), f.length(next))
			}
			f.values(next.PopMin)
			q = next
		}
	}
}

// wantDead pops from a dead-letter queue and compares.
func (f *fixture) wantDead(q *fdbpq.PriorityQueue, m fdbpq.Message, want fdbpq.DeadLetter) {
	f.Helper()
	r := f.apply(op(opPopMin, q))[0]
	if r.Err != nil || r.Item.DeadLetter == nil {
		f.Fatalf("no dead letter: %+v, %v", r.Item.ID, r.Err)
	}
	wantMessage(f.T, "dead letter", r.Item, nil, m)
	got := *r.Item.DeadLetter
	if got.At.IsZero() {
		f.Error("a dead letter without its time")
	}
	got.At = want.At
	wantEqual(f.T, "dead letter", got, want)
}

// An item that is given up before whoever leased it last got it has had a delivery less.
func TestTermUncounted(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 5, "a")
		for _, op := range []fdbpq.Op{{Kind: fdbpq.OpNak}, {Kind: fdbpq.OpTerm, Reason: fdbpq.ReasonMaxDeliver, Uncounted: true}} {
			op.Queue, op.Token = q, f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
			wantError(f.T, f.apply(op)[0].Err, nil)
		}
		f.wantDead(f.queue("jobs-dead"), message("a"), fdbpq.DeadLetter{Queue: "jobs", Reason: "max_deliver", Deliveries: 1})
	})
}

// A queue in a subspace of its own has its dead letters inside.
func TestDeadLettersOutsideAKeyspace(t *testing.T) {
	f := onMem(t)
	f.corrupt = true // there are no receipts there

	space := tuple.NewSubspace(tuple.Tuple{f.priority + "-x"}).Sub("own") // is removed with the rest
	q := fdbpq.NewQueue(space, fdbpq.RawValues)
	write(f, func(tx kv.Transaction) {
		must(q.Enqueue(tx, message("a")))
		must(q.Enqueue(tx, message("b")))
		_, lease, err := q.Lease(tx, 0)
		wantError(t, err, nil)
		wantError(t, applyIn(tx, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Token, Reason: "no"}).Err, nil)
	})
	inside := fdbpq.NewQueue(space.Sub("dead"), fdbpq.RawValues)
	for _, dead := range []*fdbpq.Queue{inside, q.DeadLetters()} {
		item, err := f.look(dead.Peek)
		if err != nil || string(item.Value) != "a" || item.DeadLetter.Queue != "" || item.DeadLetter.Reason != "no" {
			t.Errorf("%+v, %v", item, err)
		}
	}
	wantList(t, "left", f.values(q.Dequeue), "b")
}

// Whatever becomes of the commit, an item is buried once.
func TestBuryWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		for _, due := range []bool{false, true} {
			t.Run(fmt.Sprint(fault, "/due=", due), func(t *testing.T) {
				f := newUnsure(t, faultkv.Options{})
				clock := f.setClock()
				q := f.queue("jobs")
				f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
				for n := range 3 {
					f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(100 + n*400_000)})
					r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
					f.faults.Next(fault, faultkv.None, fault)
					var p *fdbpq.Pending
					if due {
						clock.advance(time.Hour)
						p = f.batcher.Start(f.ctx, []fdbpq.Op{op(opPopMin, q)})
					} else {
						p = f.batcher.Start(f.ctx, []fdbpq.Op{{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token}})
					}
					must(p.Wait())
					f.calm()
					if names := p.Filled(); !slices.Contains(names, fdbpq.QueueName{Name: "jobs-dead"}) {
						t.Errorf("dead letters went to %v", names)
					}
					wantEqual(t, "dead", f.length(q.DeadLetters()), int64(n+1))
				}
			})
		}
	}
}

// Operations that return a dead letter of their own transaction conflict with whoever pushes an item
// before it meanwhile.
func TestOwnDeadLetterConflicts(t *testing.T) {
	for _, second := range []fdbpq.Op{opPeekMin, opPopMin, opPeekMax} {
		for _, priority := range []int64{1, 9} {
			t.Run(fmt.Sprint(second.Kind, second.End, priority), func(t *testing.T) {
				f := onMem(t)
				q := f.queue("jobs")
				f.push(q, 5, "a")
				term := fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: f.leaseSome(q, 1, time.Hour)[0]}
				want := (priority == 1) == (second.End == fdbpq.Front)
				r := f.wantConflict(want, func() { f.push(q.DeadLetters(), priority, "b") }, term, op(second, q.DeadLetters()))
				wantEqual(t, "dead letter", string(r[1].Item.Value), "a")
			})
		}
	}
}

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
		if f.brief {
			largest = 2_000_000
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
