package dispatch

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// moves counts the moves of waiters and lines, and fails the test for one that is in no table.
type moves struct {
	sync.Mutex
	waiters map[[2]waiterState]int
	lines   map[[2]lineState]int
}

func newMoves() *moves {
	return &moves{waiters: map[[2]waiterState]int{}, lines: map[[2]lineState]int{}}
}

// watch counts the moves of a Dispatcher that does not run yet.
func (m *moves) watch(t testing.TB, d *Dispatcher) {
	for _, l := range d.lanes {
		l.waiterMoved = watchMoves(t, m, m.waiters, waiterMoves[:])
		l.lineMoved = watchMoves(t, m, m.lines, lineMoves[:])
	}
}

func watchMoves[State comparable](t testing.TB, m *moves, seen map[[2]State]int, table []move[State]) func(from, to State) {
	return func(from, to State) {
		m.Lock()
		defer m.Unlock()
		seen[[2]State{from, to}]++
		if !slices.ContainsFunc(table, func(row move[State]) bool { return row.from == from && row.to == to }) {
			t.Errorf("%T: there is no move from %v to %v", from, from, to)
		}
	}
}

// wantMoves checks that each move of a table has happened.
func wantMoves[State comparable](t *testing.T, seen map[[2]State]int, table []move[State]) {
	t.Helper()
	for _, row := range table {
		if seen[[2]State{row.from, row.to}] == 0 {
			t.Errorf("%T: nothing has moved from %v to %v: %s", row.from, row.from, row.to, row.when)
		}
	}
}

// checkLines checks what the states of lines and waiters say against the rest of what is known of them.
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
		trying := ln.state == lineTrying || ln.state == lineStale
		if trying != (ln.inFlight > 0) || ready[ln] != (ln.state == lineReady) || ln.reserved != 0 {
			t.Errorf("a line is %v, with %d batches and %d pops to come; listed as ready: %v", ln.state, ln.inFlight, ln.reserved, ready[ln])
		}
		waiters, ending, leases := 0, 0, 0
		for w := ln.waiters.first; w != nil; w = w.next {
			waiters++
			if w.endsWhenEmpty() {
				ending++
			}
			if w.leases() {
				leases++
			}
			if w.line != ln || w.state == waiterAcking || w.state == waiterLeft {
				t.Errorf("a waiter in line is %v", w.state)
			}
			if w.state == waiterNew || w.state.inBatch() && !trying {
				t.Errorf("a waiter is %v in a line that is %v", w.state, ln.state)
			}
		}
		if waiters != ln.waiters.n || ending != ln.ending || leases != ln.leases {
			t.Errorf("of %d waiters %d end and %d lease; counted are %d, %d and %d", waiters, ending, leases, ln.waiters.n, ln.ending, ln.leases)
		}
	}
}

// Each move in the tables happens, for the reason that it gives.
func TestEveryMove(t *testing.T) {
	seen := newMoves()
	scenario := func(name string, configure func(*Options), test func(w *waiting)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, configure, func(w *waiting) {
				test(w)
				w.stop()
				w.log.take()
				w.moves.Lock()
				defer w.moves.Unlock()
				maps.Copy(seen.waiters, w.moves.waiters)
				maps.Copy(seen.lines, w.moves.lines)
			})
		})
	}

	scenario("items come", nil, func(w *waiting) {
		w.park(pop(w.q))                  // from new to first and parked
		w.park(w.pops(fdbpq.Front, 2)...) // from new to parked
		w.d.Wake(w.q)                     // from parked to trying and back
		synctest.Wait()
		w.push("a") // to left
		w.push("b")
		w.push("c")
		w.push("d")
		w.park(pop(w.q)) // from first to left
		w.want("all", "1: a", "2: part b", "2: c", "7: d")
	})
	scenario("acknowledgements beside a line", nil, func(w *waiting) {
		w.push("a")
		w.submit(nil, w.lease())
		w.park(pop(w.q))
		next := w.lease()
		next.Follows = true
		w.submit(w.minute(), w.settle(fdbpq.OpAck, 0), next) // from new to acking and parked
		synctest.Wait()
		w.submit(w.minute(), w.settle(fdbpq.OpAck, 0), next) // from acking to left
		w.want("all", "2: a", "5: lost")
	})
	scenario("cancelled before its turn", nil, func(w *waiting) {
		wait := w.minute()
		wait.cancelled = true
		w.submit(wait, pop(w.q)) // from new to left
		w.want("all", "1: failed 1, unavailable")
	})
	scenario("time is over", nil, func(w *waiting) {
		w.submit(until(time.Second), pop(w.q)) // from parked to left
		w.park(pop(w.q))
		w.submit(until(2*time.Second), pop(w.q)) // to late, late and trying, left
		time.Sleep(3 * time.Second)
		w.want("all", "1: empty", "3: empty")
	})
	var faults *faultkv.DB
	outage := func(o *Options) {
		faults = faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{})
		o.DB = faults
	}
	scenario("time is over during an outage", outage, func(w *waiting) {
		w.park(pop(w.q))
		w.submit(until(time.Second), pop(w.q))
		faults.SetOutage(true)
		time.Sleep(time.Second + w.d.options.RequestTimeout/2) // from late to left
		faults.SetOutage(false)
		w.want("all", "2: failed 1, unavailable")
	})
	small := func(o *Options) { o.MaxBatchBytes = 4000 }
	scenario("time is over, and a batch has no room", small, func(w *waiting) {
		w.park(pop(w.q))
		large := strings.Repeat("x", 3000)
		w.pushElsewhere(large, large)
		w.submit(until(time.Second), w.pops(fdbpq.Front, 2)...) // from late and trying to late
		time.Sleep(time.Second)
		w.want("all", "1: "+large, "2: "+large+" empty")
	})
	var slow *laterDB
	later := func(o *Options) {
		slow = &laterDB{memkv.New(memkv.Options{}), make(chan struct{})}
		o.DB = slow
	}
	scenario("woken while a batch looks", later, func(w *waiting) {
		w.submit(w.minute(), pop(w.q))
		synctest.Wait()
		w.d.Wake(w.q) // from trying to stale
		close(slow.durable)
		w.want("all")
	})
	scenario("ready lines that nobody needs", nil, func(w *waiting) {
		w.park(w.lease())
		w.park(pop(w.q))
		l := w.d.lanes[0]

		l.mu.Lock()
		ln := l.lineLocked(w.q)
		ln.limit, ln.budget = limitInForce, 1
		l.makeReadyLocked(ln)
		l.leaveCancelledLocked(ln.waiters.last) // those left want leases: to quiet
		l.mu.Unlock()
		synctest.Wait()

		l.mu.Lock()
		l.wakeLineLocked(ln, 1)
		l.leaveCancelledLocked(ln.waiters.first) // to gone
		l.mu.Unlock()
		synctest.Wait()
	})

	scenario("too much is kept", func(o *Options) { o.MaxKept = 1000 }, func(w *waiting) {
		other := getQueue(t, w.d.queues, subjects.Priority, "other")
		w.park(pop(w.q))
		hold := func() {
			w.d.Keep(w.q, 100)
			w.d.Keep(other, 2000)
			w.d.Wake(w.q) // from ready to held
			synctest.Wait()
		}
		hold()
		w.d.Keep(other, -2000) // to ready
		synctest.Wait()
		w.d.Keep(w.q, -100)

		hold()
		w.d.Keep(w.q, -100) // which is less of this queue, but not of all
		w.push("a")         // from held to reserved
		w.want("served", "1: a")

		w.d.Keep(other, -2000)
		w.park(pop(w.q))
		hold()
		l := w.d.lanes[0]
		l.mu.Lock()
		l.leaveCancelledLocked(l.lineLocked(w.q).waiters.first) // from held to gone
		l.mu.Unlock()
		synctest.Wait()
	})

	wantMoves(t, seen.waiters, waiterMoves[:])
	wantMoves(t, seen.lines, lineMoves[:])
}
