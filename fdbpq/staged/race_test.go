package staged

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
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// What becomes of a commit in a test of late commits. A positive number n means that its outcome is
// unknown, and that it is made after n later commits.
const (
	refused = -1
	atOnce  = 0
)

// A commit of unknown outcome that is made after later commits of its pop changes nothing, even if
// others join the line and serve it meanwhile.
func TestLateCommits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		lates := sequences(harness.Times(3, 4), refused, atOnce, 1, 2, 3)

		// Without others, the pop gets the first item.
		for _, served := range []bool{false, true} {
			inParallel(lates, func(late []int) {
				s := newFaulty(t, served)
				what := fmt.Sprintf("%v served=%t", late, served)

				item, err := s.popLate(late, s.commit)
				if err != nil || string(item.Value) != "a" {
					t.Errorf("%s: popped %q (error %v), want a", what, item.Value, err)
				}
				s.wantLeft(what, "b", "c")
			})
		}

		// An abandoned request joins the line, and another process serves it after one of the
		// commits. Who gets which item is open then, and each item goes to one of them.
		for servedAt := 2; servedAt <= 5; servedAt++ {
			inParallel(lates, func(late []int) {
				s := newFaulty(t, false)
				s.clock.stepping(maxPatience / 4)

				item, err := s.popLate(late, func(n int, tx *meddledTransaction) error {
					err := s.commit(n, tx)
					if n == servedAt {
						_ = s.tryServe() // may meet the late ones
					}

					return err
				}, fdbpq.Front)
				wantError(t, err, nil)
				s.wantOnce(fmt.Sprintf("%v served at %d", late, servedAt), string(item.Value))
			})
		}
	})
}

// popLate pops, with late[n-1] the fate of the n'th commit, and commit in place of those that are
// made at once. Abandoned requests from the ends given join the line before the first two commits.
func (s *faulty) popLate(
	late []int, commit func(int, *meddledTransaction) error, join ...fdbpq.End,
) (fdbpq.Item, error) {
	held := map[int][]*meddledTransaction{} // by the number of the commit after which they are made
	s.meddle(nil, func(n int, tx *meddledTransaction) error {
		if n <= len(late) && late[n-1] == refused {
			return kv.ErrConflict
		}

		if n <= 2 {
			s.registerAbandoned(join...)
		}

		if n <= len(late) && late[n-1] > atOnce {
			tx.held = true
			held[n+late[n-1]] = append(held[n+late[n-1]], tx)
			return kv.ErrCommitUnknown
		}

		if join != nil { // before this one and after it
			makeLate(held[n])
			delete(held, n)
		}

		err := commit(n, tx)
		makeLate(held[n])
		delete(held, n)

		return err
	})

	item, err := s.p.PopMin(s.ctx)
	for _, list := range held {
		makeLate(list)
	}

	return item, err
}

// makeLate makes late commits, which may fail.
func makeLate(list []*meddledTransaction) {
	for _, tx := range list {
		_ = tx.commitNow()
	}
}

// wantOnce checks that each item was popped (got) or is left, not both, once all requests have
// expired.
func (s *faulty) wantOnce(what string, got ...string) {
	s.clock.advance(requestLife + answerLife)
	other := s.popper()

	for {
		item, err := other.PopMin(s.ctx)
		if err != nil {
			wantError(s.T, err, fdbpq.ErrEmpty)
			break
		}

		got = append(got, string(item.Value))
	}

	slices.Sort(got)
	wantList(s.T, what, got, "a", "b", "c")
	wantEqual(s.T, what+": length", s.length(), 0)
}

// A commit of unknown outcome that is made while its pop takes another item counts, and the other
// item stays.
func TestLateCommitOfAnotherItem(t *testing.T) {
	const served = false
	s := newFaulty(t, served)
	var late *meddledTransaction

	s.meddle(nil, func(n int, tx *meddledTransaction) error {
		switch n {
		case 1:
			return kv.ErrConflict
		case 3: // serving, it takes "a"
			late, tx.held = tx, true
			s.push(-1, "before a")
			return kv.ErrCommitUnknown
		case 4: // again, it takes the other
			_ = late.commitNow()
			err := s.commit(n, tx)
			wantError(t, err, kv.ErrConflict)
			return err
		}
		return s.commit(n, tx)
	})
	s.wantPop(s.p.PopMin, "a")
	s.wantLeft("what is left", "before a", "b", "c")
}

// interferences are what another process can do in the middle of a staged pop.
var interferences = map[string]func(s *faulty) (fdbpq.Item, error){
	"plain pop": func(s *faulty) (fdbpq.Item, error) { return s.popPlain() },
	"pop":       func(s *faulty) (fdbpq.Item, error) { return s.popper().PopMin(s.ctx) },
	"serve":     func(s *faulty) (fdbpq.Item, error) { return fdbpq.Item{}, s.tryServe() },
	"time": func(s *faulty) (fdbpq.Item, error) {
		s.clock.advance(requestLife + answerLife)
		return fdbpq.Item{}, s.tryServe()
	},
	"time and pop": func(s *faulty) (fdbpq.Item, error) {
		s.clock.advance(requestLife + answerLife)
		return s.popper().PopMin(s.ctx)
	},
}

// Whatever others do between the reads of a pop and its commit, no item is popped twice, and none
// is lost.
func TestInterference(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		type interference struct {
			name   string
			at     int // before that commit of the pop
			served bool
			random func(int) int // of a leader with one request in line; nil if it does not lead
		}

		var list []interference
		for name := range interferences {
			for at := 1; at <= 4; at++ {
				list = append(list, interference{name, at, false, nil},
					interference{name, at, true, nil})
			}
			list = append(list, interference{name, 1, false, never},
				interference{name, 1, false, always})
		}

		inParallel(list, func(i interference) {
			s := newFaulty(t, i.served)
			what := fmt.Sprintf("%s at %d, served=%t, leads=%t",
				i.name, i.at, i.served, i.random != nil)
			s.clock.stepping(maxPatience / 4)
			var got []string

			note := func(item fdbpq.Item, err error) {
				switch {
				case err != nil && !errors.Is(err, fdbpq.ErrEmpty) && !kv.Retryable(err):
					t.Errorf("%s: %v", what, err)
				case item.Value != nil:
					got = append(got, string(item.Value))
				}
			}

			s.meddle(nil, func(n int, tx *meddledTransaction) error {
				if n == 1 && i.at > 1 {
					return kv.ErrConflict
				}

				if n == i.at {
					note(interferences[i.name](s))
				}

				return s.commit(n, tx)
			})

			if i.random != nil {
				s.p.leads(1, i.random)
				s.registerAbandoned(fdbpq.Front)
			}

			note(s.p.PopMin(s.ctx))
			s.wantOnce(what, got...)
		})
	})
}

// Nobody is told "empty" if there is a push meanwhile, and a request that is withdrawn meanwhile
// gets nothing.
func TestServingMeetsPushAndWithdrawal(t *testing.T) {
	testenv.Bubble(t, servingMeetsPushAndWithdrawal)
}

func servingMeetsPushAndWithdrawal(t *testing.T) {
	f := onMem(t)
	f.registerAbandoned(fdbpq.Front) // the next one has to wait behind it
	waiting := f.popper()
	ctx, cancel := context.WithCancel(f.ctx)
	var wg sync.WaitGroup

	wg.Go(func() {
		_, err := waiting.PopMin(ctx)
		wantError(t, err, context.Canceled)
	})

	for f.stored().requests < 2 {
		time.Sleep(time.Millisecond)
	}

	p := f.popperOf(&meddled{Database: f.db, write: func(n int, tx *meddledTransaction) error {
		switch n {
		case 2: // serving, which found nothing
			f.push(1, "a")
			f.push(2, "b")

			err := tx.commitNow()
			wantError(t, err, kv.ErrConflict)

			return err
		case 3: // serving all three for the second time, while one of them is withdrawn
			cancel()
			wg.Wait()

			err := tx.commitNow()
			wantError(t, err, kv.ErrConflict)

			return err
		}
		return tx.commitNow()
	}})

	moving := newClock()
	moving.stepping(maxPatience / 4)
	p.SetNow(moving.now)

	// The abandoned request has got "a", and the withdrawn one nothing.
	f.wantPop(p.PopMin, "b")
	f.wantStored(stored{answers: 1, values: 1, claims: 1})
	wantEqual(t, "length", f.length(), 0)
}
