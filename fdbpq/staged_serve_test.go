package fdbpq_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

func (f *fixture) serve(p *fdbpq.Popper) {
	f.Helper()
	if err := p.Serve(f.ctx); err != nil {
		f.Fatalf("Serve: %v", err)
	}
}

// Requests are served in order, each from its own end. Those without an item stay in line
// until the queue is empty.
func TestServeInOrder(t *testing.T) {
	f := onMem(t)
	q := f.queue("order")
	p := fdbpq.NewPopper(f.db, q)
	f.fill(q, "a", "b", "c")
	f.line(p, fdbpq.Back, fdbpq.Front, fdbpq.Back, fdbpq.Back, fdbpq.Front)
	f.serve(p)
	f.wantStaged(p, 2, 3, 3, 0)
	wantEqual(t, "ends", f.staged(p).Ends, []fdbpq.End{fdbpq.Back, fdbpq.Front})
	f.push(q, 7, "d")
	f.serve(p)
	f.wantStaged(p, 1, 4, 4, 0)
	f.serve(p)
	f.wantStaged(p, 0, 5, 4, 0)
	f.serve(p) // nobody is there
	f.wantStaged(p, 0, 5, 4, 0)
	wantEqual(t, "length", f.length(q), 0)
}

// A long line is served in pieces, and so is one for values too long for one transaction,
// whatever their bytes.
func TestServeInPieces(t *testing.T) {
	for name, test := range map[string]struct {
		value  string
		line   int
		served int // at once
	}{
		"many": {"short", fdbpq.ServeLimit + 10, fdbpq.ServeLimit},
		"long": {strings.Repeat("\x00", 100_000), 20, fdbpq.ServeBytes/90_000 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("pieces")
			c := newClock(time.Now())
			p := fdbpq.NewPopper(f.db, q)
			c.give(p)
			for range test.line {
				f.push(q, 0, test.value)
				f.line(p, fdbpq.Front)
			}
			f.serve(p)
			f.wantStaged(p, test.line-test.served, test.served, test.served, 0)
			for range 2 {
				f.serve(p)
			}
			f.wantStaged(p, 0, test.line, test.line, 0)
			c.advance(fdbpq.AnswerLife)
			for range test.line {
				f.wantPop(p.PopMin, test.value)
				c.advance(fdbpq.SweepEvery)
			}
			f.wantEmpty(p.PopMin)
			f.wantStaged(p, 0, 0, 0, 1)
		})
	}
}

// Any Popper removes what the pops of dead Poppers left behind, even if it is more than one
// transaction handles.
func TestLeftoversAreRemoved(t *testing.T) {
	f := onMem(t)
	q := f.queue("left")
	c := newClock(time.Now())
	const n = fdbpq.DuePage + 50
	for i := range n {
		f.push(q, 0, fmt.Sprint(i))
		p := fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.wantPop(p.PopMin, fmt.Sprint(i))
	}
	p := fdbpq.NewPopper(f.db, q)
	c.give(p)
	for range n {
		f.line(p, fdbpq.Back)
	}
	f.serve(p)
	f.serve(p) // all of them are told "empty"
	f.wantStaged(p, 0, n, 0, n)
	c.advance(fdbpq.ClaimLife + time.Microsecond)
	f.wantEmpty(p.PopMin)
	f.wantEmpty(p.PopMin)
	f.wantStaged(p, 0, 0, 0, 0)
}
