package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// popFaults are the faults of a commit.
var popFaults = []faultkv.Fault{faultkv.None, faultkv.Conflict, faultkv.UnknownLost,
	faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext}

// popUnknowns are those that leave the outcome unknown.
var popUnknowns = popFaults[2:]

// faultSequences returns all sequences of n faults.
func faultSequences(n int) [][]faultkv.Fault {
	list := [][]faultkv.Fault{{}}
	for range n {
		var longer [][]faultkv.Fault
		for _, script := range list {
			for _, fault := range popFaults {
				longer = append(longer, append(slices.Clip(script), fault))
			}
		}
		list = longer
	}
	return list
}

// inParallel runs tests that spend most of their time waiting.
func inParallel[V any](list []V, test func(V)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 100)
	for _, v := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			test(v)
		})
	}
	wg.Wait()
}

// stagedFixture is a queue of three items in a store that has faults for the Popper, but not
// for the fixture.
type stagedFixture struct {
	*fixture
	store *faultkv.DB
	q     *fdbpq.PriorityQueue
	p     *fdbpq.Popper
	clock *clock
	// served: another process serves the line after two commits of p, once it has
	// registered.
	served bool
}

func newStagedFixture(t *testing.T) *stagedFixture {
	f := onMem(t)
	store := faultkv.New(f.db, faultkv.Options{})
	q := f.queue("faults")
	s := &stagedFixture{fixture: f, store: store, q: q, clock: newClock(time.Now())}
	s.popper(nil, s.commit)
	f.push(q, 0, "a")
	write(f, func(tx kv.Transaction) {
		_, err := q.Push(tx, 1, fdbpq.Message{Value: []byte("b"), Headers: map[string][]string{"H": {"b"}}})
		if err != nil {
			t.Errorf("Push: %v", err)
		}
	})
	f.push(q, 2, "c")
	return s
}

// popper makes a Popper with hooks: see meddled.
func (s *stagedFixture) popper(begin func(n int), write func(n int, tx kv.Transaction) error) {
	s.p = fdbpq.NewPopper(&meddled{Database: s.store, begin: begin, write: write}, s.q)
	s.clock.give(s.p)
}

// commit makes the n'th commit.
func (s *stagedFixture) commit(n int, tx kv.Transaction) error {
	err := commitNow(tx)
	if n == 2 && s.served {
		other := fdbpq.NewPopper(s.db, s.q)
		s.clock.give(other)
		s.serve(other)
	}
	return err
}

// wantLeft checks that exactly the given items are left, in order, once the commits in
// flight have landed.
func (s *stagedFixture) wantLeft(what string, want ...string) {
	s.Helper()
	s.store.Land()
	s.ctx = context.Background()
	staged := s.staged(s.p)
	if staged.Requests+staged.Answers+staged.Values > 0 || staged.Claims > 1 {
		s.Errorf("%s: left over: %+v", what, staged)
	}
	wantEqual(s.T, what+": length", s.length(s.q), int64(len(want)))
	s.check()
	wantList(s.T, what, s.values(s.q.PopMin), want...)
	if n := len(s.stored(s.priority)) - staged.Claims - staged.Due; n != 0 {
		s.Errorf("%s: %d keys of an empty queue are left", what, n)
	}
}

// Whatever happens to the first four commits of a pop, it pops one item and no other.
func TestPopWithFaultsAtEveryCommit(t *testing.T) {
	list := faultSequences(4)
	for _, served := range []bool{false, true} {
		inParallel(list, func(script []faultkv.Fault) {
			s := newStagedFixture(t)
			s.served = served
			what := fmt.Sprintf("%v served=%t", script, served)
			pop, want, left := s.p.PopMin, "a", []string{"b", "c"}
			if script[3] == faultkv.None { // the other end, too
				pop, want, left = s.p.PopMax, "c", []string{"a", "b"}
			}
			s.store.Next(script...)
			item, err := pop(s.ctx)
			if err != nil || string(item.Value) != want {
				t.Errorf("%s: popped %q (error %v), want %q", what, item.Value, err, want)
			}
			s.wantLeft(what, left...)
		})
	}
	t.Logf("%d sequences of faults", len(list))
}

// The same if the first commit is lost, so that faults hit serving and collecting, and for an
// item with headers.
func TestStagedPopWithFaultsAtEveryCommit(t *testing.T) {
	list := faultSequences(3)
	for _, served := range []bool{false, true} {
		inParallel(list, func(script []faultkv.Fault) {
			s := newStagedFixture(t)
			s.served = served
			what := fmt.Sprintf("%v served=%t", script, served)
			if _, err := s.take(s.q.PopMin); err != nil {
				t.Error(err)
			}
			s.store.Next(append([]faultkv.Fault{faultkv.Conflict, faultkv.None}, script...)...)
			item, err := s.p.PopMin(s.ctx)
			if err != nil || string(item.Value) != "b" || item.Headers["H"][0] != "b" {
				t.Errorf("%s: popped %q with %v (error %v), want b", what, item.Value, item.Headers, err)
			}
			s.wantLeft(what, "c")
		})
	}
	t.Logf("%d sequences of faults", len(list))
}

// ending is where a pop ends, and the faults that come one after another.
type ending struct {
	begin  int // before that transaction begins, from 1; 0: never
	write  int // after that commit that wrote, likewise
	script []faultkv.Fault
	served bool
}

// endings are the ends of a staged pop at each of its transactions, with every fault of the
// last commit and of the next one, which withdraws.
func endings() []ending {
	var list []ending
	for _, served := range []bool{false, true} {
		for at := 1; at <= 4; at++ {
			list = append(list, ending{begin: at, served: served, script: []faultkv.Fault{faultkv.Conflict}})
		}
		// The last commit takes an item at once, registers, or serves or collects.
		for _, path := range [][]faultkv.Fault{{}, {faultkv.Conflict}, {faultkv.Conflict, faultkv.None}} {
			for _, last := range popUnknowns {
				for _, next := range popFaults {
					script := append(slices.Clone(path), last, next)
					list = append(list, ending{write: len(script) - 1, script: script, served: served})
				}
			}
		}
	}
	return list
}

// A pop whose context ends at any point is withdrawn, and has no effect.
func TestContextEndsAnywhere(t *testing.T) {
	list := endings()
	inParallel(list, func(at ending) {
		s := newStagedFixture(t)
		what := fmt.Sprintf("%+v", at)
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		s.endAt(at, cancel)
		item, err := s.p.PopMin(ctx)
		if err == nil {
			if string(item.Value) != "a" {
				t.Errorf("%s: popped %q, want a", what, item.Value)
			}
			s.wantLeft(what, "b", "c")
			return
		}
		if !errors.Is(err, context.Canceled) || kv.MaybeCommitted(err) {
			t.Errorf("%s: error %v, want context.Canceled alone", what, err)
		}
		s.wantLeft(what, "a", "b", "c")
	})
	t.Logf("%d ends", len(list))
}

// endAt calls end at the given point.
func (s *stagedFixture) endAt(at ending, end func()) {
	s.store.Next(at.script...)
	s.served = at.served
	begin := func(n int) {
		if n == at.begin {
			end()
		}
	}
	s.popper(begin, func(n int, tx kv.Transaction) error {
		err := s.commit(n, tx)
		if n == at.write {
			end()
		}
		return err
	})
}

// A pop that cannot be withdrawn, because the store cannot be reached, says so, and is
// settled later by Settle or by the next pop.
func TestSettleStagedPops(t *testing.T) {
	list := slices.DeleteFunc(endings(), func(at ending) bool { return at.begin > 0 })
	inParallel(list, func(at ending) {
		for _, byPop := range []bool{false, true} {
			s := newStagedFixture(t)
			what := fmt.Sprintf("%+v by a pop: %t", at, byPop)
			s.endAt(at, func() { s.store.SetOutage(true) })
			_, err := s.p.PopMin(s.ctx)
			wantError(t, err, kv.ErrUnavailable)
			wantError(t, err, kv.ErrCommitUnknown)
			wantError(t, s.p.Settle(s.ctx), kv.ErrUnavailable)
			_, err = s.p.PopMin(s.ctx)
			wantError(t, err, kv.ErrUnavailable)
			s.store.SetOutage(false)
			if byPop {
				item, err := s.p.PopMax(s.ctx)
				if err != nil || string(item.Value) != "c" {
					t.Errorf("%s: popped %q (error %v), want c", what, item.Value, err)
				}
				s.wantLeft(what, "a", "b")
				continue
			}
			if err := s.p.Settle(s.ctx); err != nil {
				t.Errorf("%s: Settle: %v", what, err)
			}
			s.wantLeft(what, "a", "b", "c")
		}
	})
}

// A pop that could not even begin has nothing to withdraw, and its outcome is known.
func TestPopThatCannotBegin(t *testing.T) {
	s := newStagedFixture(t)
	s.store.SetOutage(true)
	_, err := s.p.PopMin(s.ctx)
	wantError(t, err, kv.ErrUnavailable)
	if kv.MaybeCommitted(err) {
		t.Errorf("nothing was tried, and the error is %v", err)
	}
	s.store.SetOutage(false)
	s.wantLeft("what is left", "a", "b", "c")
}
