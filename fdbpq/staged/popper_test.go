package staged

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

func TestPopperAlone(t *testing.T) {
	onEngines(t, func(f *fixture) {
		p := f.popper()
		f.wantEmpty(p)
		f.fill("a", "b", "c", "d")
		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMax, "d")
		f.wantPop(p.PopMax, "c")
		f.wantPop(p.PopMin, "b")
		f.wantEmpty(p)
		f.wantStored(0, 0, 0, 1)

		f.target = must(f.Queue("jobs"))
		p = f.popper()
		f.fill("a", "b")
		_, err := p.PopMax(f.ctx)
		wantError(f.T, err, fdbpq.ErrOp)
		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMin, "b")
		f.wantEmpty(p)
	})
}

// A pop that loses to another registers, serves the line, and collects.
func TestPopperThatLost(t *testing.T) {
	f := onMem(t)
	store := faultkv.New(f.db, faultkv.Options{})
	p := f.popperOf(store)
	f.fill("a", "b", "c")
	for _, step := range []struct {
		pop  func(context.Context) (fdbpq.Item, error)
		want string
	}{{p.PopMin, "a"}, {p.PopMax, "c"}, {p.PopMax, "b"}} {
		store.Next(faultkv.Conflict)
		f.wantPop(step.pop, step.want)
		f.wantStored(0, 0, 0, 1)
	}
	f.wantEmpty(p)

	f.line(fdbpq.Front) // so that the next one has to wait
	f.clock.stepping(maxPatience / 2)
	f.wantEmpty(f.popper())
	f.wantStored(0, 1, 0, 1)
}

// A paused queue gives nothing to staged pops.
func TestPausedQueue(t *testing.T) {
	f := onMem(t)
	f.fill("a", "b")
	pause := func(until time.Time) {
		f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) { s.PauseUntil = until }})
	}
	pause(f.clock.now().Add(time.Hour))
	p := f.popper()
	_, err := p.PopMin(f.ctx)
	wantError(t, err, fdbpq.ErrPaused)
	f.line(fdbpq.Front)
	f.serve()
	f.wantStored(0, 1, 0, 0)
	wantEqual(t, "length", f.length(), 2)
	pause(time.Time{})
	f.wantPop(p.PopMin, "a")
}

// The steps of a staged pop start as many reads as possible together.
func TestRounds(t *testing.T) {
	store := countkv.New(openMem(t))
	f := newFixture(t, store, fdbpq.RawValues)
	item := push(0, "value")
	item.Message.Headers = map[string][]string{"A": {"1"}}
	const n = 3
	f.apply(slices.Repeat([]fdbpq.Op{item}, n)...)
	p, l := f.popper(), f.q.Layout()
	var requests []*request
	for range n {
		f.write(func(tx kv.Transaction) {
			r := newRequest(l, fdbpq.Front, f.clock.now())
			line, claims, _ := r.beginLook(tx)()
			requests = append(requests, r)
			wantError(t, r.register(tx, line, claims, f.clock.now()), nil)
		})
	}

	look := func(r *request) func() error {
		return func() error {
			result, err := p.checkAnswer(t.Context(), r)
			if err == nil && (result == nil || len(result.Item.Headers) != 1) {
				t.Errorf("result %+v", result)
			}
			return err
		}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want countkv.Cost
	}{
		// The answer, with the first in line, the newest claim and the request; the line with the
		// settings and what is due; the items; the headers of its own item with the history.
		{"serve", look(requests[0]), countkv.Cost{Reads: 10, Rounds: 4}},
		// The claim together with the answer and the like.
		{"look for what was taken", look(requests[0]), countkv.Cost{Reads: 5, Rounds: 1}},
		// The answer; the value together with the headers, the history and the settings.
		{"collect", look(requests[1]), countkv.Cost{Reads: 8, Rounds: 2}},
		// The claim together with the answer; the value together with the headers.
		{"withdraw", func() error { return p.erase(t.Context(), requests[2]) }, countkv.Cost{Reads: 4, Rounds: 2}},
	} {
		store.Take()
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		wantEqual(t, step.name+": costs", store.Take(), []countkv.Cost{step.want})
	}
}
