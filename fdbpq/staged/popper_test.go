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

// A Popper that nobody competes with pops like a queue does, from the ends that the queue has, and
// leaves nothing behind but its newest claim.
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
		f.wantStored(stored{claims: 1})

		// A FIFO queue has no back to pop from.
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
		f.wantStored(stored{claims: 1})
	}
	f.wantEmpty(p)

	// The next one finds an abandoned request in line, and serves it too.
	f.registerAbandoned(fdbpq.Front)
	f.clock.stepping(maxPatience / 2)
	f.wantEmpty(f.popper())
	f.wantStored(stored{answers: 1, claims: 1})
}

// A paused queue gives nothing to staged pops, in line or not, until the pause is over.
func TestPausedQueue(t *testing.T) {
	f := onMem(t)
	f.fill("a", "b")

	pause := func(until time.Time) {
		f.apply(fdbpq.Op{
			Kind:      fdbpq.OpConfigure,
			Configure: func(s *fdbpq.Settings) { s.PauseUntil = until },
		})
	}

	pause(f.clock.now().Add(time.Hour))
	p := f.popper()

	_, err := p.PopMin(f.ctx)
	wantError(t, err, fdbpq.ErrPaused)

	f.registerAbandoned(fdbpq.Front)
	f.serve()
	f.wantStored(stored{answers: 1})
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
		// settings and the time index; the items; the headers of its own item with the history.
		{"serve", look(requests[0]), countkv.Cost{Reads: 10, Rounds: 4}},
		// The claim together with the answer and the like.
		{"look for what was taken", look(requests[0]), countkv.Cost{Reads: 5, Rounds: 1}},
		// The answer; the value together with the headers, the history and the settings.
		{"collect", look(requests[1]), countkv.Cost{Reads: 8, Rounds: 2}},
		// The claim together with the answer; the value together with the headers.
		{
			"withdraw",
			func() error { return p.erase(t.Context(), requests[2]) },
			countkv.Cost{Reads: 4, Rounds: 2},
		},
	} {
		store.Take()
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		wantEqual(t, step.name+": costs", store.Take(), []countkv.Cost{step.want})
	}
}
