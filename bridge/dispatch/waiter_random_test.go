package dispatch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// lineModel is a queue and its waiters, as plain lists.
type lineModel struct {
	items   []modelItem
	held    []modelItem // by due
	waiters []modelWaiter
	refuses uint64 // the waiter whose Deliver returns false
	credits int    // left, in the model
	events  []string
}

type modelItem struct {
	priority int64
	count    int
	value    string
	due      time.Time
}

type modelWaiter struct {
	n      uint64
	end    fdbpq.End
	lease  time.Duration
	wanted int
	wait   *Wait
	beat   time.Time // when its next heartbeat is due
}

func (m *lineModel) add(items ...modelItem) {
	m.items = append(m.items, items...)
	slices.SortFunc(m.items, func(a, b modelItem) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.count, b.count))
	})
}

func (m *lineModel) hold(item modelItem) {
	m.held = append(m.held, item)
	slices.SortFunc(m.held, func(a, b modelItem) int { return a.due.Compare(b.due) })
}

// take gives the waiter what it can get, as one call.
func (m *lineModel) take(w *modelWaiter, now time.Time) {
	var got []string
	shares := w.wait != nil && w.wait.Credits != nil

	for ; w.wanted > 0 && len(m.items) > 0 && (!shares || m.credits > 0); w.wanted-- {
		if shares {
			m.credits--
		}

		at := 0
		if w.end == fdbpq.Back {
			at = len(m.items) - 1
		}

		item := m.items[at]
		m.items = slices.Delete(m.items, at, at+1)
		got = append(got, item.value)

		if w.lease > 0 {
			item.due = now.Add(w.lease).Truncate(time.Microsecond)
			m.hold(item)
		}
	}

	switch {
	case len(got) == 0:
	case w.wanted == 0:
		m.note(w.n, got...)
	case w.wait == nil || w.wait.OnlyIfEmpty && w.beat.IsZero() && len(m.waiters) == 1:
		m.note(w.n, append(got, "empty")...)
		w.wanted = 0
	default:
		m.note(w.n, append([]string{"part"}, got...)...)
		if w.n == m.refuses {
			w.wanted = 0
		}
	}
}

func (m *lineModel) note(n uint64, words ...string) {
	m.events = append(m.events, fmt.Sprint(n, ": ", strings.Join(words, " ")))
}

func (m *lineModel) serve(now time.Time) {
	for i := range m.waiters {
		m.take(&m.waiters[i], now)
	}
	m.waiters = slices.DeleteFunc(m.waiters, func(w modelWaiter) bool { return w.wanted == 0 })
}

// advance lets time pass.
func (m *lineModel) advance(to time.Time) {
	for {
		at, next := to, -1
		for i := range m.waiters {
			w := &m.waiters[i]
			if w.wait.Until.Before(at) {
				at, next = w.wait.Until, i
			}

			if w.beat.Before(at) {
				at, next = w.beat, i
			}
		}

		switch {
		// Without waiters nobody looks, so this is when somebody does.
		case len(m.held) > 0 && !m.held[0].due.After(at):
			at = m.held[0].due
			for len(m.held) > 0 && m.held[0].due.Equal(at) {
				m.add(m.held[0])
				m.held = m.held[1:]
			}

			m.serve(at)
		case next < 0:
			return
		case at.Equal(m.waiters[next].beat):
			w := &m.waiters[next]
			m.note(w.n, "heartbeat", fmt.Sprint(w.wanted))
			w.beat = at.Add(w.wait.Heartbeat)
		default:
			m.note(m.waiters[next].n, "empty")
			m.waiters = slices.Delete(m.waiters, next, next+1)
		}
	}
}

// Whatever comes in whatever order, each request gets the items that a plain list says.
func TestWaitersRandomly(t *testing.T) {
	for range 30 {
		seed := rand.Uint64()
		inBubble(t, nil, func(w *waiting) { testWaitersRandomly(w, seed, 150) })
		if t.Failed() {
			t.Fatalf("the seed is %d", seed)
		}
	}
}

func testWaitersRandomly(w *waiting, seed uint64, steps int) {
	random := rand.New(rand.NewPCG(seed, 0))
	m := &lineModel{credits: 3}
	credits := NewCredits(3)

	for step := range steps {
		what := ""
		end := fdbpq.End(random.IntN(2))
		op := fdbpq.Op{Kind: fdbpq.OpPop, Queue: w.q.Target, End: end}
		waiter := modelWaiter{end: end, wanted: 1 + random.IntN(3)}

		if random.IntN(3) == 0 {
			op.Kind = fdbpq.OpLease
			op.Lease = time.Second + time.Duration(random.Int64N(int64(20*time.Second)))
			waiter.lease = op.Lease
		}

		switch k := random.IntN(13); {
		case k < 4:
			var ops []fdbpq.Op
			for range 1 + random.IntN(3) {
				item := modelItem{
					priority: random.Int64N(3),
					count:    step*10 + len(ops),
					value:    fmt.Sprint("v", step, ".", len(ops)),
				}

				o := push(w.q, item.value)
				o.Priority = item.priority

				if ops = append(ops, o); random.IntN(4) > 0 {
					m.add(item)
					continue
				}

				delay := 1 + time.Duration(random.Int64N(int64(10*time.Second)))
				ops[len(ops)-1].Delay = delay
				item.due = time.Now().Add(delay).Truncate(time.Microsecond)
				m.hold(item)
			}

			w.submit(nil, ops...)
			m.serve(time.Now())
			what = "push"
		case k < 8:
			wait := &Wait{
				Until: time.Now().Add(1 + time.Duration(random.Int64N(int64(30*time.Second)))),
			}
			if wait.OnlyIfEmpty = random.IntN(3) == 0; !wait.OnlyIfEmpty && waiter.lease > 0 {
				wait.Credits = credits
			}

			wait.Heartbeat = time.Second + time.Duration(random.Int64N(int64(20*time.Second)))
			waiter.wait, waiter.n = wait, w.n+1

			if random.IntN(5) == 0 {
				m.refuses, w.log.mu.refuses = waiter.n, waiter.n
			}

			w.submit(wait, pops(op, waiter.wanted)...)
			m.waiters = append(m.waiters, waiter)
			m.serve(time.Now())

			if n := len(m.waiters); n > 0 && m.waiters[n-1].n == waiter.n {
				m.waiters[n-1].beat = time.Now().Add(wait.Heartbeat)
			}

			what = "wait"
		case k < 9:
			waiter.n = w.submit(nil, pops(op, waiter.wanted)...)
			if m.take(&waiter, time.Now()); len(m.events) == 0 {
				m.note(waiter.n, "empty")
			}

			what = "pop"
		case k < 10 && len(m.waiters) > 0:
			i := random.IntN(len(m.waiters))
			w.d.Cancel(WaitHandle{w.q, m.waiters[i].wait})
			m.note(m.waiters[i].n, "failed 1, unavailable")
			m.waiters = slices.Delete(m.waiters, i, i+1)
			what = "cancel"
		case k < 11:
			n := 1 + random.IntN(2)
			w.d.AddCredits(w.q, credits, n)
			m.credits += n
			m.serve(time.Now())
			what = "credits"
		default:
			d := time.Duration(random.Int64N(int64(10 * time.Second)))
			m.advance(time.Now().Add(d))
			time.Sleep(d)
			what = "sleep"
		}

		synctest.Wait()
		checkLines(w.t, w.d.lanes[0])

		if got := w.log.take(); !slices.Equal(got, m.events) {
			w.t.Errorf("step %d, %s: got %q, want %q", step, what, got, m.events)
			return
		}

		m.events = nil
		if got := w.q.Waiters(); got != len(m.waiters) {
			w.t.Errorf("step %d, %s: %d waiters, want %d", step, what, got, len(m.waiters))
			return
		}
	}
}

// watchMoves fails the test for a move that is not in the tables of states.go. The Dispatcher does
// not run yet.
func watchMoves(t testing.TB, d *Dispatcher) {
	for _, l := range d.lanes {
		l.waiterMoved = inTable[waiterState](t,
			"new acking first parked trying late lateTrying left")
		l.lineMoved = inTable[lineState](t, "quiet ready reserved trying gone")
	}
}

func inTable[State ~uint8](t testing.TB, states string) func(from, to State) {
	source, err := os.ReadFile("states.go")
	must(t, err)
	_, table, ok := strings.Cut(string(source),
		strings.TrimPrefix(fmt.Sprintf("%T says", State(0)), "dispatch."))
	table, _, _ = strings.Cut(table, "\ntype ")
	moves, names := map[[2]string]bool{}, strings.Fields(states)

	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) > 3 {
			moves[[2]string{words[1], words[2]}] = true
		}
	}
	if !ok || len(moves) < len(names) {
		t.Errorf("states.go has no table for %T", State(0))
	}

	return func(from, to State) {
		if !moves[[2]string{names[from], names[to]}] {
			t.Errorf("%T: there is no move from %s to %s", from, names[from], names[to])
		}
	}
}

// checkLines checks the states of lines and waiters against everything else that is known of them.
func checkLines(t testing.TB, l *lane) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	ready := map[*line]bool{}

	for ln := l.mu.ready.first; ln != nil; ln = ln.next {
		ready[ln] = true
	}
	if len(ready) != l.mu.ready.n {
		t.Errorf("%d lines are ready, %d are counted", len(ready), l.mu.ready.n)
	}

	for _, ln := range l.mu.lines {
		trying := ln.state == lineTrying
		if trying != (ln.inFlight > 0) || ready[ln] != (ln.state == lineReady) || ln.reserved != 0 {
			t.Errorf("a line is %v, with %d batches and %d pops to come; listed as ready: %v",
				ln.state, ln.inFlight, ln.reserved, ready[ln])
		}

		waiters, ending, leases, blocked := 0, 0, 0, 0
		for w := ln.waiters.first; w != nil; w = w.next {
			waiters++
			if w.endsWhenEmpty() {
				ending++
			}

			if w.leases() {
				leases++
			}

			if w.state.isIdle() && w.blocked() {
				blocked++
			}
			if w.line != ln || w.state == waiterAcking || w.state == waiterLeft {
				t.Errorf("a waiter in line is %v", w.state)
			}
			if w.state == waiterNew || w.state.inBatch() && !trying {
				t.Errorf("a waiter is %v in a line that is %v", w.state, ln.state)
			}
		}
		if waiters != ln.waiters.n || ending != ln.ending || leases != ln.leases ||
			blocked != ln.blocked {
			t.Errorf(
				"of %d waiters %d end, %d lease and %d are blocked; counted are %d, %d, %d and %d",
				waiters, ending, leases, blocked, ln.waiters.n, ln.ending, ln.leases, ln.blocked)
		}
	}
}

// Lines that are held because too much is unconfirmed become ready or reserved.
func TestHeldLines(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxUnconfirmed = 1000 }, func(w *waiting) {
		other := getQueue(t, w.d.queues, subjects.Priority, "other")
		w.park(pop(w.q))

		hold := func() {
			w.d.AddUnconfirmed(w.q, 100)
			w.d.AddUnconfirmed(other, 2000)
			w.d.Wake(w.q) // from ready to held
			synctest.Wait()
		}

		hold()
		w.d.AddUnconfirmed(other, -2000) // to ready
		synctest.Wait()
		w.d.AddUnconfirmed(w.q, -100)

		hold()
		w.d.AddUnconfirmed(w.q, -100) // which is less of this queue, but not of all
		w.push("a")                   // from held to reserved

		w.want("served", "1: a")

		w.d.AddUnconfirmed(other, -2000)
	})
}
