package dispatch

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

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

// everyMove has the moves of all tests that TestEveryMove runs.
var everyMove *moves

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

// A line that is ready, and that nobody needs any more, is quiet or gone.
func TestReadyLinesThatNobodyNeeds(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
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
}

// Lines that are held because too much is kept become ready, reserved or gone.
func TestHeldLines(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxKept = 1000 }, func(w *waiting) {
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
}

// Each move in the tables happens, for the reason that it gives.
func TestEveryMove(t *testing.T) {
	everyMove = newMoves()
	defer func() { everyMove = nil }()
	for _, test := range []func(*testing.T){
		TestReadyLinesThatNobodyNeeds, TestHeldLines, TestCancelSubmitted, TestAckThatWaitsForTheNext,
		TestWaiterWhoseTimeIsOverBeforeItsTurn, TestLastLookAtMaxLeased, TestLastLookBesideAPushThatIsRefused,
	} {
		test(t)
	}
	wantMoves(t, everyMove.waiters, waiterMoves[:])
	wantMoves(t, everyMove.lines, lineMoves[:])
}
