package staged

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// popFaults are the faults of a commit.
var popFaults = []faultkv.Fault{faultkv.None, faultkv.Conflict, faultkv.UnknownLost,
	faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext}

// popUnknowns are the faults that leave the outcome unknown.
var popUnknowns = popFaults[2:]

// faulty is a queue of three items, the first one with a history. The store has faults for the
// Popper p, but not for the fixture.
type faulty struct {
	*fixture
	store *faultkv.DB
	p     *Popper
	old   fdbpq.Token // of a lease of "a" that is over
	// served: another process serves the line after two commits of p, once it has registered.
	served bool
}

func newFaulty(t *testing.T, served bool) *faulty {
	f := onMem(t)
	s := &faulty{fixture: f, store: faultkv.New(f.db, faultkv.Options{}), served: served}
	s.meddle(nil, s.commit)
	b := push(1, "b")
	b.Message.Headers = map[string][]string{"H": {"b"}}
	keepAttempts := func(s *fdbpq.Settings) { s.Trail = 8 } // the invariants say where
	f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: keepAttempts}, push(0, "a"), b,
		push(2, "c"))
	s.old = f.apply(fdbpq.Op{Kind: fdbpq.OpLease})[0].Lease.Token
	f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Token: s.old})

	return s
}

// meddle makes a Popper with hooks: see meddled.
func (s *faulty) meddle(begin func(n int), write func(n int, tx *meddledTransaction) error) {
	s.p = s.popperOf(&meddled{Database: s.store, begin: begin, write: write})
}

// commit makes the n'th commit.
func (s *faulty) commit(n int, tx *meddledTransaction) error {
	err := tx.commitNow()
	if n == 2 && s.served {
		s.serve()
	}

	return err
}

// wantLeft checks that exactly the given items are left, in order, once the commits in flight have
// landed.
func (s *faulty) wantLeft(what string, want ...string) {
	s.Helper()
	s.store.Land()
	s.ctx = context.Background()
	left := s.stored()

	if left.requests+left.answers+left.values > 0 || left.claims > 1 {
		s.Errorf("%s: left over: %+v", what, left)
	}
	wantEqual(s.T, what+": length", s.length(), int64(len(want)))
	s.check()
	s.wantValues(what, want...)

	begin, end := tuple.NewSubspace(tuple.Tuple{s.root}).Range()
	s.write(func(tx kv.Transaction) {
		all := must(tx.GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{}).Get())
		wantEqual(s.T, what+": keys beside the settings of an empty queue", len(all)-1,
			left.claims+left.due)
	})
}

// wantHistory checks that no token of before holds the first item when it is leased again.
func (s *faulty) wantHistory(what string) {
	s.Helper()
	s.store.Land()
	s.ctx = context.Background()
	r := s.apply(fdbpq.Op{Kind: fdbpq.OpLease})[0]

	if r.Err != nil || string(r.Item.Value) != "a" || r.Lease.Token.Fence <= s.old.Fence ||
		r.Lease.Deliveries != 2 {
		s.Errorf("%s: leased %q, %+v, %v, after the token %+v",
			what, r.Item.Value, r.Lease, r.Err, s.old)
	}
	wantError(s.T, s.apply(fdbpq.Op{Kind: fdbpq.OpAck, Token: s.old})[0].Err, fdbpq.ErrLeaseLost)

	s.apply(fdbpq.Op{Kind: fdbpq.OpNak, Token: r.Lease.Token})
}

// Whatever happens to the commits of a pop, it pops one item and no other.
func TestFaultsAtEveryCommit(t *testing.T) {
	for _, path := range []struct {
		name   string
		before []faultkv.Fault // these come first
		n      int             // then n more
		setUp  func(s *faulty)
		max    bool // if the last of them is none, pop the last
		want   string
		left   []string
	}{
		{name: "at once", n: harness.Times(3, 4), max: true, want: "a", left: []string{"b", "c"}},
		{name: "in line",
			before: []faultkv.Fault{faultkv.Conflict, faultkv.None},
			n:      harness.Times(2, 3),
			want:   "b",
			left:   []string{"c"},
			setUp:  func(s *faulty) { _, _ = s.popPlain() }},
		{name: "leader",
			n:    harness.Times(2, 3),
			want: "b",
			left: []string{"a", "c"},
			setUp: func(s *faulty) {
				s.p.leads(1, always)
				s.registerAbandoned(fdbpq.Front) // its owner is gone
				s.clock.stepping(maxPatience / 4)
			}},
	} {
		subtest(t, path.name, func(t *testing.T) {
			for _, served := range []bool{false, true} {
				inParallel(sequences(path.n, popFaults...), func(script []faultkv.Fault) {
					s := newFaulty(t, served)
					what := fmt.Sprintf("%v served=%t", script, served)

					if path.setUp != nil {
						path.setUp(s)
					}

					pop, want, left := s.p.PopMin, path.want, path.left
					if path.max && script[path.n-1] == faultkv.None {
						pop, want, left = s.p.PopMax, "c", []string{"a", "b"}
					}

					s.store.Next(append(slices.Clone(path.before), script...)...)
					item, err := pop(s.ctx)
					if err != nil || string(item.Value) != want ||
						len(item.Headers["H"]) == 0 && want == "b" {
						t.Errorf("%s: popped %q with %v (error %v), want %q",
							what, item.Value, item.Headers, err, want)
					}

					s.store.Land()
					s.clock.stepping(0)

					if path.name == "leader" { // the line has got an item, which comes back
						s.clock.advance(answerLife)
						s.apply(fdbpq.Op{Kind: fdbpq.OpPeek})
					}
					s.wantLeft(what, left...)
				})
			}
		})
	}
}

// ending is where a pop ends, and the faults that come one after another.
type ending struct {
	begin  int // before that transaction begins, from 1; 0: never
	write  int // after that commit that wrote, likewise
	script []faultkv.Fault
	served bool
}

// endings are the ends of a staged pop at each of its transactions, with every fault of the last
// commit and of the next one, which withdraws.
func endings() (list []ending) {
	for _, served := range []bool{false, true} {
		for at := 1; at <= 4; at++ {
			list = append(list,
				ending{begin: at, served: served, script: []faultkv.Fault{faultkv.Conflict}})
		}
		// The last commit takes an item at once, registers, or serves or collects.
		for _, path := range [][]faultkv.Fault{
			{},
			{faultkv.Conflict},
			{faultkv.Conflict, faultkv.None},
		} {
			for _, last := range popUnknowns {
				for _, next := range popFaults {
					script := append(slices.Clone(path), last, next)
					list = append(list,
						ending{write: len(script) - 1, script: script, served: served})
				}
			}
		}
	}
	return list
}

// endAt calls end at the given point.
func (s *faulty) endAt(at ending, end func()) {
	s.store.Next(at.script...)
	begin := func(n int) {
		if n == at.begin {
			end()
		}
	}

	s.meddle(begin, func(n int, tx *meddledTransaction) error {
		err := s.commit(n, tx)
		if n == at.write {
			end()
		}

		return err
	})
}

// A pop whose context ends at any point is withdrawn, and has no effect. Its item returns with its
// history.
func TestContextEndsAnywhere(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		inParallel(endings(), func(at ending) {
			s := newFaulty(t, at.served)
			what := fmt.Sprintf("%+v", at)
			ctx, cancel := context.WithCancel(s.ctx)
			defer cancel()
			s.endAt(at, cancel)

			item, err := s.p.PopMin(ctx)
			if err == nil {
				wantEqual(t, what, string(item.Value), "a")
				s.wantLeft(what, "b", "c")
				return
			}

			if !errors.Is(err, context.Canceled) || kv.MaybeCommitted(err) {
				t.Errorf("%s: error %v, want context.Canceled alone", what, err)
			}
			s.wantHistory(what)
			s.wantLeft(what, "a", "b", "c")
		})
	})
}

// A pop that cannot be withdrawn, because the store cannot be reached, says so. Settle or the next
// pop settles it.
func TestSettle(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		list := slices.DeleteFunc(endings(), func(at ending) bool { return at.begin > 0 })
		inParallel(list, func(at ending) {
			for _, byPop := range []bool{false, true} {
				s := newFaulty(t, at.served)
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
					s.wantPop(s.p.PopMax, "c")
					s.wantLeft(what, "a", "b")
					continue
				}

				wantError(t, s.p.Settle(s.ctx), nil)
				s.wantLeft(what, "a", "b", "c")
			}
		})
	})
}

// A pop that could not even begin has nothing to withdraw, and its outcome is known.
func TestPopThatCannotBegin(t *testing.T) {
	s := newFaulty(t, false)
	s.store.SetOutage(true)

	_, err := s.p.PopMin(s.ctx)
	wantError(t, err, kv.ErrUnavailable)
	if kv.MaybeCommitted(err) {
		t.Errorf("nothing was tried, and the error is %v", err)
	}

	s.store.SetOutage(false)
	s.wantLeft("what is left", "a", "b", "c")
}

// An item stored in another format is returned as it was stored.
func TestWithdrawnItemKeepsItsBytes(t *testing.T) { testenv.Bubble(t, withdrawnItemKeepsItsBytes) }

func withdrawnItemKeepsItsBytes(t *testing.T) {
	f := newFixture(t, openMem(t), fdbpq.TupleValues)
	f.foreign = true
	l := f.q.Layout()
	key := l.ItemKey(&fdbpq.ID{Priority: 1})
	f.write(func(tx kv.Transaction) { tx.Set(key, []byte("no tuple")) })
	ctx, cancel := context.WithCancel(f.ctx)

	p := f.popperOf(&meddled{Database: f.db, write: func(n int, tx *meddledTransaction) error {
		defer cancel()
		if err := tx.commitNow(); err != nil || n > 1 {
			return err
		}

		return kv.ErrCommitUnknown
	}})

	_, err := p.PopMin(ctx)
	wantError(t, err, context.Canceled)

	f.write(func(tx kv.Transaction) {
		wantEqual(t, "stored", string(must(tx.Get(key).Get())), "no tuple")
	})
}
