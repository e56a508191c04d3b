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

// A commit of unknown outcome that is made after later commits of its pop changes nothing; with
// grows also while others join the line before each commit. A sequence says of each commit that it
// is made (0), refused (-1), or of unknown outcome and made after the given number of later ones.
func TestLateCommits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		lates := sequences(harness.Times(3, 4), -1, 0, 1, 2, 3)
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
				}, fdbpq.Front) // and is gone
				wantError(t, err, nil)
				s.wantOnce(fmt.Sprintf("%v served at %d", late, servedAt), string(item.Value))
			})
		}
	})
}

// popLate pops with late commits. Requests from the ends given join the line before the first two
// commits.
func (s *faulty) popLate(late []int, commit func(int, *meddledTransaction) error, join ...fdbpq.End) (fdbpq.Item, error) {
	held := map[int][]*meddledTransaction{} // by the number of the commit after which they are made
	s.meddle(nil, func(n int, tx *meddledTransaction) error {
		if n <= len(late) && late[n-1] == -1 {
			return kv.ErrConflict
		}
		if n <= 2 {
			s.line(join...)
		}
		if n <= len(late) && late[n-1] > 0 {
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

// wantOnce checks that each item was popped, or is left, once all requests have expired.
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
	s := newFaulty(t, false)
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
			at     int // before that commit
			served bool
			random func(int) int // nil unless it leads
		}
		var list []interference
		for name := range interferences {
			for at := 1; at <= 4; at++ {
				list = append(list, interference{name, at, false, nil}, interference{name, at, true, nil})
			}
			list = append(list, interference{name, 1, false, never}, interference{name, 1, false, always})
		}
		inParallel(list, func(i interference) {
			s := newFaulty(t, i.served)
			what := fmt.Sprintf("%s at %d, served=%t, leads=%t", i.name, i.at, i.served, i.random != nil)
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
				s.line(fdbpq.Front)
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
	f.line(fdbpq.Front) // dead, so that the next one waits behind it
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
		case 3: // serving all three, for the second time
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
	f.wantPop(p.PopMin, "b") // the dead one has the other
	f.wantStored(0, 1, 1, 1)
	wantEqual(t, "length", f.length(), 0)
}
