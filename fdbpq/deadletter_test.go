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

// The name of a dead-letter queue is never too long, and never the name of its own queue, however
// often items die.
func TestDeadLetterNames(t *testing.T) {
	die := func(f *fixture, q *fdbpq.PriorityQueue) (to string) {
		f.push(q, 1, "a")
		token := f.leaseSome(q, 1, time.Minute)[0]

		p := f.batcher.Start(f.ctx, []fdbpq.Op{{Kind: fdbpq.OpTerm, Queue: q, Token: token}})
		wantErrors(t, must(p.Wait()))

		return p.Filled()[0].Name
	}

	const (
		longest = fdbpq.MaxQueueName // bytes
		room    = longest - len("-dead")
	)
	x := func(n int) string { return strings.Repeat("x", n) }

	for name, want := range map[string]string{
		"jobs":                        "jobs-dead",
		"jobs-dead":                   "jobs-dead-dead",
		x(room):                       x(room) + "-dead",
		x(longest):                    x(room) + "-dead", // cut off
		x(room) + "-dead":             x(room-len("-dead")) + "-dead-dead",
		"a" + strings.Repeat("ä", 63): "a" + strings.Repeat("ä", 61) + "-dead", // at a character
	} {
		f := onMem(t)
		wantEqual(t, "name", die(f, f.queue(name)), want)
		f.wantListed(name, slices.Sorted(slices.Values([]string{name, want}))...)

		item, err := f.take(f.queue(want).PopMin)
		if err != nil || item.DeadLetter.Queue != name {
			t.Errorf("%q: %+v, %v", want, item, err)
		}
	}

	for _, name := range []string{x(longest), "x", "é" + strings.Repeat("ä", 63)} {
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

// A dead letter does not count the delivery of an uncounted OpTerm.
func TestTermUncounted(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 5, "a")

		for _, op := range []fdbpq.Op{
			{Kind: fdbpq.OpNak},
			{Kind: fdbpq.OpTerm, Reason: fdbpq.ReasonMaxDeliver, Uncounted: true},
		} {
			op.Queue, op.Token = q, f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
			wantError(f.T, f.apply(op)[0].Err, nil)
		}
		f.wantDead(f.queue("jobs-dead"), message("a"),
			fdbpq.DeadLetter{Queue: "jobs", Reason: "max_deliver", Deliveries: 1})
	})
}

// A dead letter that dies again goes back to the queue it first came from, unless that is where it
// died.
func TestDeadLetterKeepsItsFirstQueue(t *testing.T) {
	for _, test := range []struct {
		deadLetterOfDead string // the queue that dead letters of jobs-dead move to; "" is the usual
		home             string
	}{
		{deadLetterOfDead: "", home: "jobs"},
		{deadLetterOfDead: "jobs", home: "jobs-dead"},
	} {
		onEngines(t, func(f *fixture) {
			jobs, dead := f.queue("jobs"), f.queue("jobs-dead")
			f.apply(fdbpq.Op{
				Kind:  fdbpq.OpConfigure,
				Queue: dead,
				Configure: func(s *fdbpq.Settings) {
					s.DeadLetter = test.deadLetterOfDead
				},
			})

			last := dead.DeadLetters()
			if test.deadLetterOfDead != "" {
				last = jobs
			}

			f.push(jobs, 3, "a")
			for _, q := range []*fdbpq.PriorityQueue{jobs, dead} {
				token := f.leaseSome(q, 1, time.Minute)[0]
				term := fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token}
				wantError(f.T, f.apply(term)[0].Err, nil)
			}

			letter := f.apply(op(opPeekMin, last))[0].Item
			redriven := f.apply(fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: last, ID: letter.ID})[0]

			wantError(f.T, redriven.Err, nil)
			wantEqual(f.T, "the queue of the letter", letter.DeadLetter.Queue, test.home)
			wantEqual(f.T, "where it went", redriven.Home, test.home)
			wantEqual(f.T, "items there", f.length(f.queue(test.home)), 1)
		})
	}
}

// A queue in a subspace of its own keeps its dead letters inside.
func TestDeadLettersOutsideAKeyspace(t *testing.T) {
	f := onMem(t)
	f.corrupt = true // there are no receipts there

	// It is removed with the receipts.
	space := tuple.NewSubspace(tuple.Tuple{f.priority + "-x"}).Sub("own")
	q := fdbpq.NewQueue(space, fdbpq.RawValues)

	write(f, func(tx kv.Transaction) {
		must(q.Enqueue(tx, message("a")))
		must(q.Enqueue(tx, message("b")))
		_, lease, err := q.Lease(tx, 0)
		wantError(t, err, nil)

		term := fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Token, Reason: "no"}
		wantError(t, applyIn(tx, term).Err, nil)
	})

	inside := fdbpq.NewQueue(space.Sub("dead"), fdbpq.RawValues)
	for _, dead := range []*fdbpq.Queue{inside, q.DeadLetters()} {
		item, err := f.look(dead.Peek)
		if err != nil || string(item.Value) != "a" || item.DeadLetter.Queue != "" ||
			item.DeadLetter.Reason != "no" {
			t.Errorf("%+v, %v", item, err)
		}
	}
	wantList(t, "left", f.values(q.Dequeue), "b")
}

// An item is buried once, whatever becomes of the commit, and its batch names its job.
func TestBuryWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		for _, due := range []bool{false, true} {
			t.Run(fmt.Sprint(fault, "/due=", due), func(t *testing.T) {
				f := newUnsure(t, faultkv.Options{})
				clock := f.setClock()
				q := f.queue("jobs")
				f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })

				for n := range 3 {
					f.apply(fdbpq.Op{
						Kind:    fdbpq.OpPush,
						Queue:   q,
						Message: largeMessage(100 + n*400_000),
					})

					r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
					f.faults.Next(fault, faultkv.None, fault)
					var p *fdbpq.Pending

					if due {
						clock.advance(time.Hour)
						p = f.batcher.Start(f.ctx, []fdbpq.Op{op(opPopMin, q)})
					} else {
						nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token}
						p = f.batcher.Start(f.ctx, []fdbpq.Op{nak})
					}
					must(p.Wait())
					f.calm()

					names := p.Filled()
					if !slices.Contains(names, fdbpq.QueueName{Name: "jobs-dead"}) {
						t.Errorf("dead letters went to %v", names)
					}

					job := fdbpq.QueueJob{Queue: fdbpq.QueueName{Name: "jobs"}, Job: r.Item.ID}
					if !slices.Contains(p.Ended(), job) {
						t.Errorf("ended: %v, want %v", p.Ended(), job)
					}
					wantEqual(t, "dead", f.length(q.DeadLetters()), int64(n+1))
				}
			})
		}
	}
}

// A pop or peek that returns a dead letter of its own transaction, with the priority 5, conflicts
// with a concurrent push of an item that would have come first at its end.
func TestOwnDeadLetterConflicts(t *testing.T) {
	for _, second := range []fdbpq.Op{opPeekMin, opPopMin, opPeekMax} {
		for _, priority := range []int64{1, 9} {
			t.Run(fmt.Sprint(second.Kind, second.End, priority), func(t *testing.T) {
				f := onMem(t)
				q := f.queue("jobs")
				f.push(q, 5, "a")

				term := fdbpq.Op{
					Kind:  fdbpq.OpTerm,
					Queue: q,
					Token: f.leaseSome(q, 1, time.Hour)[0],
				}

				want := (priority == 1) == (second.End == fdbpq.Front)
				r := f.wantConflict(want, func() { f.push(q.DeadLetters(), priority, "b") }, term,
					op(second, q.DeadLetters()))
				wantEqual(t, "dead letter", string(r[1].Item.Value), "a")
			})
		}
	}
}

// A batch reads few more large items than it has room to bury.
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
	if buried < 8 { // nearly as many as fit
		t.Errorf("%d of %d were buried", buried, n)
	}

	// Each item and its first parts, the settings, and those and the ends of the dead-letter queue;
	// then the rest of those buried, and of one.
	if reads := f.store.Take()[0].Reads; reads > 2*n+4+buried+1 {
		t.Errorf("%d reads to bury %d of %d", reads, buried, n)
	}
}

// largeMessage has n bytes as a message counts them, with a header: four more than its texts.
func largeMessage(n int) fdbpq.Message {
	size := fmt.Sprint(n)
	return fdbpq.Message{
		Headers: map[string][]string{"Size": {size}},
		Value:   pattern(n-len("Size")-len(size)-4, n),
	}
}

// Items of all sizes are buried whole: by OpTerm or when their leases run out, alone, in numbers,
// and beside other operations.
func TestLargeDeadLetters(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		q, dead := f.queue("jobs"), f.queue("jobs-dead")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })

		ends := []fdbpq.Op{
			{Kind: fdbpq.OpTerm, Reason: "no"},
			{Kind: fdbpq.OpNak, Reason: "no"},
			{},
		}

		largest := fdbpq.MaxMessageSize
		if f.format == fdbpq.TupleValues {
			largest = 5_000_000 // in tuples a value may take twice its bytes
		}

		if f.brief {
			largest = 2_000_000
		}

		// Of one key, of several, and too large to be buried beside others.
		for _, size := range []int{100, 89_000, 200_000, 600_000, largest} {
			m := largeMessage(size)
			for _, end := range ends {
				push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 7, Message: m}
				wantError(f.T, f.apply(push)[0].Err, nil)

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

// Many items that die at once, large ones among them, are buried in as many transactions as that
// takes, and each Pending names the queue that got them.
func TestManyDie(t *testing.T) {
	const many, large, behind = 60, 3, 1000 // the large ones have priorities from behind on
	m := newMuchFixture(onMem(t))
	m.configure(m.q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
	m.leaseAll(many, 90_000)
	var leases []fdbpq.Op

	for n := range large {
		m.apply(fdbpq.Op{
			Kind:     fdbpq.OpPush,
			Queue:    m.q,
			Priority: int64(behind + n),
			Message:  largeMessage(3_000_000),
		})
		leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: m.q})
	}

	m.apply(leases...)
	m.clock.advance(time.Hour)

	beside := fdbpq.Op{
		Kind:    fdbpq.OpPush,
		Queue:   m.queue("other"),
		Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)},
	}

	p := m.batcher.Start(m.ctx, []fdbpq.Op{op(opPopMin, m.q), beside, op(opLen, m.q)})
	results := must(p.Wait())
	wantError(t, results[0].Err, fdbpq.ErrEmpty)

	if got := p.Filled(); !slices.Contains(got, fdbpq.QueueName{Name: "much-dead"}) {
		t.Errorf("dead letters went to %v", got)
	}

	m.sweepAll()
	wantEqual(t, "dead", m.length(m.q.DeadLetters()), int64(many+large))

	for n := range int64(many + large) {
		if n >= many {
			n += behind - many
		}

		item, err := m.take(m.q.DeadLetters().PopMin)
		if err != nil || item.ID.Priority != n {
			t.Fatalf("item %d is %d, %v", n, item.ID.Priority, err)
		}
	}
}

// When many small items die at once, a transaction reads no more of them than it has room to bury.
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
	if tries < 4 || tries > 20 { // a transaction buries some hundred
		t.Errorf("it took %d transactions to bury %d items", tries, n)
	}
	wantEqual(t, "dead", m.length(m.q.DeadLetters()), int64(n))
	m.check()
}

// A burial that does not fit beside the largest push fails with its token intact, and the next
// attempt succeeds.
func TestNoRoomForBurial(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(1_000_000)})
	token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
	term := fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token}

	push := fdbpq.Op{
		Kind:    fdbpq.OpPush,
		Queue:   f.queue("other"),
		Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)},
	}

	results := f.apply(push, term)
	wantErrors(t, results, nil, fdbpq.ErrNoRoom)
	f.check()
	wantError(t, f.apply(term)[0].Err, nil)
	wantError(t, f.apply(term)[0].Err, fdbpq.ErrLeaseLost)
	wantEqual(t, "dead", f.length(q.DeadLetters()), int64(1))
}
