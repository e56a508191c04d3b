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
)

// The name of a dead-letter queue is not too long, and not that of its own queue, however often items die.
func TestDeadLetterNames(t *testing.T) {
	die := func(f *fixture, q *fdbpq.PriorityQueue) (to string) {
		f.push(q, 1, "a")
		p := f.batcher.Start(f.ctx, []fdbpq.Op{{Kind: fdbpq.OpTerm, Queue: q, Token: f.leaseSome(q, 1, time.Minute)[0]}})
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
	f.corrupt = true                                                      // there are no receipts there
	space := tuple.NewSubspace(tuple.Tuple{f.priority + "-x"}).Sub("own") // is removed with the rest
	q := fdbpq.NewQueue(space, fdbpq.RawValues)
	write(f, func(tx kv.Transaction) {
		must(q.Enqueue(tx, message("a")))
		must(q.Enqueue(tx, message("b")))
		_, lease, err := q.Lease(tx, 0)
		wantError(t, err, nil)
		wantError(t, q.Term(tx, lease.Token, "no"), nil)
	})
	for _, dead := range []*fdbpq.Queue{fdbpq.NewQueue(space.Sub("dead"), fdbpq.RawValues), q.DeadLetters()} {
		item, err := f.look(dead.Peek)
		if err != nil || string(item.Value) != "a" || item.DeadLetter.Queue != "" || item.DeadLetter.Reason != "no" {
			t.Errorf("%+v, %v", item, err)
		}
	}
	wantList(t, "left", f.values(q.Dequeue), "b")
}

// Items of programs with the bare recipe die too. They get what they lack.
func TestRecipeItemsDie(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		list := f.recipePuts(f.priority, false)
		now := time.Now()
		for _, want := range list {
			r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
			wantError(f.T, r.Err, nil)
			wantError(f.T, f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: r.Lease.Token})[0].Err, nil)
			f.check()
			item, err := f.take(q.DeadLetters().PopMin)
			if err != nil || string(item.Value) != string(want.Value) || item.ID.Priority != want.Priority || item.DeadLetter == nil ||
				item.PushedAt.UnixMicro() != now.UnixMicro() {
				f.Errorf("%+v, %v: want %+v", item, err, want)
			}
		}
		f.check()
	})
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
