package dispatch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// lineModel is a queue and those who wait for its items, as plain lists.
type lineModel struct {
	items   []modelItem
	held    []modelItem // by due
	waiters []modelWaiter
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
	until  time.Time
}

func (m *lineModel) add(items ...modelItem) {
	m.items = append(m.items, items...)
	slices.SortFunc(m.items, func(a, b modelItem) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.count, b.count))
	})
}

// take gives the waiter what it can get, as one call.
func (m *lineModel) take(w *modelWaiter, now time.Time) {
	var got []string
	for ; w.wanted > 0 && len(m.items) > 0; w.wanted-- {
		at := 0
		if w.end == fdbpq.Back {
			at = len(m.items) - 1
		}
		item := m.items[at]
		m.items = slices.Delete(m.items, at, at+1)
		got = append(got, item.value)
		if w.lease > 0 {
			item.due = now.Add(w.lease).Truncate(time.Microsecond)
			m.held = append(m.held, item)
			slices.SortFunc(m.held, func(a, b modelItem) int { return a.due.Compare(b.due) })
		}
	}
	switch {
	case len(got) == 0:
	case w.wanted == 0:
		m.note(w.n, got...)
	default:
		m.note(w.n, append([]string{"part"}, got...)...)
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
		at := to
		for i := range m.waiters {
			if m.waiters[i].until.Before(at) {
				at = m.waiters[i].until
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
		case at.Before(to):
			i := slices.IndexFunc(m.waiters, func(w modelWaiter) bool { return w.until.Equal(at) })
			w := m.waiters[i]
			m.waiters = slices.Delete(m.waiters, i, i+1)
			m.note(w.n, "empty")
		default:
			return
		}
	}
}

// Whatever comes in whatever order, everybody gets what a plain list says.
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
	m := &lineModel{}
	for step := range steps {
		what := ""
		end := fdbpq.End(random.IntN(2))
		op := fdbpq.Op{Kind: fdbpq.OpPop, Queue: w.q.Target, End: end}
		waiter := modelWaiter{end: end, wanted: 1 + random.IntN(3)}
		if random.IntN(3) == 0 {
			op.Kind, op.Lease = fdbpq.OpLease, time.Second+time.Duration(random.Int64N(int64(20*time.Second)))
			waiter.lease = op.Lease
		}
		switch k := random.IntN(10); {
		case k < 4:
			var ops []fdbpq.Op
			for range 1 + random.IntN(3) {
				item := modelItem{priority: random.Int64N(3), count: step*10 + len(ops), value: fmt.Sprint("v", step, ".", len(ops))}
				m.add(item)
				o := push(w.q, item.value)
				o.Priority = item.priority
				ops = append(ops, o)
			}
			w.submit(nil, ops...)
			m.serve(time.Now())
			what = "push"
		case k < 7:
			waiter.until = time.Now().Add(1 + time.Duration(random.Int64N(int64(30*time.Second))))
			waiter.n = w.submit(&Wait{Until: waiter.until}, pops(op, waiter.wanted)...)
			m.waiters = append(m.waiters, waiter)
			m.serve(time.Now())
			what = "wait"
		case k < 8:
			wanted := waiter.wanted
			waiter.n = w.submit(nil, pops(op, wanted)...)
			before := len(m.events)
			m.take(&waiter, time.Now())
			if waiter.wanted == wanted {
				m.note(waiter.n, "empty")
			} else if waiter.wanted > 0 {
				m.events[before] = strings.Replace(m.events[before], "part ", "", 1) + " empty"
			}
			what = "pop"
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
