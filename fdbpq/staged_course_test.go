package fdbpq_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// always and never have leaders serve each line that they may skip, and none.
func always(int) int  { return 0 }
func never(n int) int { return n - 1 }

// leader returns a Popper that has seen n requests in line.
func (f *fixture) leader(q fdbpq.Target, n int, random func(int) int) *fdbpq.Popper {
	p := fdbpq.NewPopper(f.db, q)
	p.SetRandom(random)
	p.Lead(n)
	return p
}

// A leader skips a line, and takes the first item, or serves the line first, each request from its own end.
func TestLeaderSkipsOrServes(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("lead")
		f.fill(q, "a", "b", "c", "d", "e", "f")
		p := f.leader(q, 0, never)
		f.line(p, fdbpq.Front, fdbpq.Back)
		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMax, "f")
		f.wantStaged(p, 2, 0, 0, 1)
		p.SetRandom(always)
		f.wantPop(p.PopMax, "d") // after "b" and "e" for the line
		f.wantStaged(p, 0, 2, 2, 1)
		f.wantPop(p.PopMin, "c")
		f.wantEmpty(p.PopMin)
		wantEqual(f.T, "leads", p.IsLeader(), true)
	})
}

// It serves a line that is too long to skip, one request after the other until there are no more items. Then
// its own goes to the end of the line.
func TestLeaderServesLongLine(t *testing.T) {
	for _, items := range []int{0, 20, fdbpq.MaxSkipped + 1, fdbpq.MaxSkipped + 2} {
		t.Run(fmt.Sprint("items=", items), func(t *testing.T) {
			f := onMem(t)
			q := f.queue("long")
			p := f.leader(q, 0, never)
			for range fdbpq.MaxSkipped {
				f.line(p, fdbpq.Front)
			}
			f.push(q, 0, "skips")
			f.wantPop(p.PopMin, "skips")
			f.line(p, fdbpq.Front)
			f.push(q, 0, "skips, too")
			f.wantPop(p.PopMin, "skips, too")
			for i := range items {
				f.push(q, 0, fmt.Sprint(i))
			}
			answered := min(items, fdbpq.MaxSkipped+1)
			if items > answered {
				f.wantPop(p.PopMin, fmt.Sprint(answered))
			} else {
				f.wantEmpty(p.PopMin)
				answered = fdbpq.MaxSkipped + 1
			}
			f.wantStaged(p, 0, answered, min(items, answered), 1)
		})
	}
}

// Whatever happens to the commits of a pop that serves a line, it pops one item, and the line gets one.
func TestLeaderWithFaultsAtEveryCommit(t *testing.T) {
	list := faultSequences(3)
	for _, served := range []bool{false, true} {
		inParallel(list, func(script []faultkv.Fault) {
			s := newStagedFixture(t)
			s.served = served
			s.popper(nil, s.commit)
			what := fmt.Sprintf("%v served=%t", script, served)
			s.p.SetRandom(always)
			s.p.Lead(1)
			s.line(s.p, fdbpq.Front) // its owner is gone
			s.clock.stepping(fdbpq.MaxPatience / 4)
			s.store.Next(script...)
			item, err := s.p.PopMin(s.ctx)
			if err != nil || string(item.Value) != "b" {
				t.Errorf("%s: popped %q (error %v), want b", what, item.Value, err)
			}
			s.store.Land()
			s.clock.advance(fdbpq.AnswerLife)
			s.wantPop(fdbpq.NewPopper(s.db, s.q).PopMax, "c")
			other := fdbpq.NewPopper(s.db, s.q)
			s.clock.give(other)
			s.wantPop(other.PopMin, "a") // is back
			s.wantEmpty(other.PopMin)
			wantEqual(t, what+": length", s.length(s.q), 0)
		})
	}
}

// A pop that skips the line takes the item that is the first when it commits, and one that serves takes no item
// that is gone by then.
func TestLeaderMeetsOthers(t *testing.T) {
	for name, test := range map[string]struct {
		random func(int) int
		other  func(f *fixture, q *fdbpq.PriorityQueue)
		want   string // after that of the line
	}{
		"skips, and meets a push": {never, func(f *fixture, q *fdbpq.PriorityQueue) { f.push(q, -1, "urgent") }, "a"},
		"serves, and meets a pop": {always, func(f *fixture, q *fdbpq.PriorityQueue) {
			if _, err := f.take(q.PopMin); err != nil { // "a"
				f.Error(err)
			}
		}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("meets")
			f.fill(q, "a", "b", "c")
			p := fdbpq.NewPopper(&meddled{Database: f.db, write: func(n int, tx kv.Transaction) error {
				if n > 1 {
					return commitNow(tx)
				}
				test.other(f, q)
				err := commitNow(tx)
				wantError(t, err, kv.ErrConflict)
				return err
			}}, q)
			p.SetRandom(test.random)
			p.Lead(1)
			c := newClock(time.Now())
			c.stepping(fdbpq.MaxPatience / 4)
			c.give(p)
			f.line(p, fdbpq.Front)
			f.wantPop(p.PopMin, test.want)
			f.wantStaged(p, 0, 1, 1, 1)
		})
	}
}

// A Popper follows after it has lost, or found a line, and another has answered. It leads again once it has served
// the line.
func TestLeadersAndFollowers(t *testing.T) {
	f, store := onFaults(t, faultkv.Options{})
	q := f.queue("roles")
	f.fill(q, "a", "b", "c", "d", "e", "f")
	p, other := fdbpq.NewPopper(f.db, q), f.leader(q, 1, always)
	wantEqual(t, "a new one leads", p.IsLeader(), false)
	f.wantPop(p.PopMin, "a")
	wantEqual(t, "leads", p.IsLeader(), true)

	store.Next(faultkv.Conflict)
	f.wantPop(p.PopMin, "b") // nobody else is there
	wantEqual(t, "leads", p.IsLeader(), true)

	still := newClock(time.Now()) // patience does not end
	still.give(p, other)
	f.line(p, fdbpq.Front) // is the first
	store.Next(faultkv.Conflict)
	var wg sync.WaitGroup
	wg.Go(func() { f.wantPop(p.PopMin, "d") })
	for f.staged(other).Requests < 2 {
		runtime.Gosched()
	}
	f.wantPop(other.PopMin, "e")
	wg.Wait()
	wantEqual(t, "follows", p.IsFollower(), true)
	f.wantPop(p.PopMin, "f")
	wantEqual(t, "leads", p.IsLeader(), true)
}

// While a leader pops and pops, those in line get their items, from it and not from each other.
func TestLineIsNotStarved(t *testing.T) {
	f := onMem(t)
	q := f.queue("starve")
	waiting := make([]*fdbpq.Popper, 3)
	still := newClock(time.Now())
	var wg sync.WaitGroup
	var popped sync.Map
	for i := range waiting {
		waiting[i] = fdbpq.NewPopper(f.db, q)
		still.give(waiting[i])
		f.line(waiting[i], fdbpq.Front) // is gone
	}
	for _, p := range waiting {
		wg.Go(func() {
			item, err := p.PopMin(f.ctx)
			if err != nil {
				t.Error(err)
			}
			popped.Store(string(item.Value), true)
		})
	}
	p := f.leader(q, 0, rand.New(rand.NewPCG(1, 2)).IntN)
	for f.staged(p).Requests < 2*len(waiting) {
		runtime.Gosched()
	}
	const most = 30*6 + 15
	skips := 0
	for ; f.staged(p).Requests > 0 && skips <= most; skips++ {
		f.push(q, 0, fmt.Sprint(skips))
		f.push(q, 0, fmt.Sprint(skips, "+"))
		if _, err := p.PopMin(f.ctx); err != nil {
			t.Error(err)
		}
	}
	if skips > most {
		t.Errorf("%d pops skipped a line of %d", skips, 2*len(waiting))
	}
	wg.Wait()
	n := 0
	popped.Range(func(_, _ any) bool { n++; return true })
	wantEqual(t, "items of the line", n, len(waiting))
}
