package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// meddled is a store for one goroutine that lets tests intervene.
type meddled struct {
	kv.Database
	// begin is called before the n'th transaction begins, unless nil.
	begin func(n int)
	// write is called in place of the n'th commit of a transaction that wrote.
	write          func(n int, tx kv.Transaction) error
	begins, writes int
}

func (h *meddled) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if h.begins++; h.begin != nil {
		h.begin(h.begins)
	}
	tx, err := h.Database.Begin(ctx, o)
	return &meddledTransaction{Transaction: tx, h: h}, err
}

type meddledTransaction struct {
	kv.Transaction
	h     *meddled
	wrote bool
	held  bool // to be committed later
}

func (tx *meddledTransaction) Set(key, value []byte) {
	tx.wrote = true
	tx.Transaction.Set(key, value)
}

func (tx *meddledTransaction) Clear(key []byte) {
	tx.wrote = true
	tx.Transaction.Clear(key)
}

func (tx *meddledTransaction) Commit() kv.Future[struct{}] {
	if !tx.wrote {
		return tx.Transaction.Commit()
	}
	tx.h.writes++
	return kv.Ready(struct{}{}, tx.h.write(tx.h.writes, tx))
}

func (tx *meddledTransaction) Cancel() {
	if !tx.held {
		tx.Transaction.Cancel()
	}
}

// commitNow is a commit without intervention.
func commitNow(tx kv.Transaction) error {
	_, err := tx.(*meddledTransaction).Transaction.Commit().Get()
	return err
}

// lates are all sequences of four commits. Each is made (0), refused (-1), or of unknown
// outcome and made after the given number of later ones.
func lates() [][]int {
	list := [][]int{{}}
	for range 4 {
		var longer [][]int
		for _, sequence := range list {
			for what := -1; what <= 3; what++ {
				longer = append(longer, append(slices.Clip(sequence), what))
			}
		}
		list = longer
	}
	return list
}

// A commit of unknown outcome that is made after later commits of its pop changes nothing.
func TestLateCommits(t *testing.T) {
	for _, served := range []bool{false, true} {
		inParallel(lates(), func(late []int) { lateCommits(t, late, served) })
	}
	t.Logf("%d sequences", len(lates()))
}

func lateCommits(t *testing.T, late []int, served bool) {
	s := newStagedFixture(t)
	s.served = served
	what := fmt.Sprintf("%v served=%t", late, served)
	held := map[int][]*meddledTransaction{} // by the number of the commit after which they are made
	s.popper(nil, func(n int, tx kv.Transaction) error {
		if n <= len(late) && late[n-1] == -1 {
			return kv.ErrConflict
		}
		if n <= len(late) && late[n-1] > 0 {
			tx := tx.(*meddledTransaction)
			tx.held = true
			held[n+late[n-1]] = append(held[n+late[n-1]], tx)
			return kv.ErrCommitUnknown
		}
		err := s.commit(n, tx)
		makeLate(held[n])
		delete(held, n)
		return err
	})
	item, err := s.p.PopMin(s.ctx)
	if err != nil || string(item.Value) != "a" {
		t.Errorf("%s: popped %q (error %v), want a", what, item.Value, err)
	}
	for _, list := range held {
		makeLate(list)
	}
	s.wantLeft(what, "b", "c")
}

// The same while others join the line before each commit: each item is popped once, or stays.
func TestLateCommitsWhileTheLineGrows(t *testing.T) {
	for servedAt := 2; servedAt <= 5; servedAt++ {
		inParallel(lates(), func(late []int) { lateCommitsWhileTheLineGrows(t, late, servedAt) })
	}
}

func lateCommitsWhileTheLineGrows(t *testing.T, late []int, servedAt int) {
	s := newStagedFixture(t)
	s.clock.stepping(fdbpq.MaxPatience / 4)
	other := fdbpq.NewPopper(s.db, s.q)
	s.clock.give(other)
	held := map[int][]*meddledTransaction{}
	s.popper(nil, func(n int, tx kv.Transaction) error {
		if n <= len(late) && late[n-1] == -1 {
			return kv.ErrConflict
		}
		if n <= 2 {
			s.line(other, fdbpq.Front) // and is gone
		}
		if n <= len(late) && late[n-1] > 0 {
			tx := tx.(*meddledTransaction)
			tx.held = true
			held[n+late[n-1]] = append(held[n+late[n-1]], tx)
			return kv.ErrCommitUnknown
		}
		makeLate(held[n])
		delete(held, n)
		err := s.commit(n, tx)
		if n == servedAt {
			_ = other.Serve(s.ctx) // may meet the late ones
		}
		return err
	})
	item, err := s.p.PopMin(s.ctx)
	what := fmt.Sprintf("%v served at %d", late, servedAt)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, list := range held {
		makeLate(list)
	}
	s.clock.advance(fdbpq.RequestLife + fdbpq.AnswerLife)
	got := []string{string(item.Value)}
	for err = nil; err == nil; {
		if item, err = other.PopMin(s.ctx); err == nil {
			got = append(got, string(item.Value))
		}
	}
	wantError(t, err, fdbpq.ErrEmpty)
	slices.Sort(got)
	wantList(t, what, got, "a", "b", "c")
	wantEqual(t, what+": length", s.length(s.q), 0)
}

// A commit of unknown outcome that is made while its pop takes another item counts, and the
// other item stays.
func TestLateCommitOfAnotherItem(t *testing.T) {
	s := newStagedFixture(t)
	var late []*meddledTransaction
	s.popper(nil, func(n int, tx kv.Transaction) error {
		switch n {
		case 1:
			return kv.ErrConflict
		case 3: // serving, it takes "a"
			late = append(late, tx.(*meddledTransaction))
			late[0].held = true
			s.push(s.q, -1, "before a")
			return kv.ErrCommitUnknown
		case 4: // again, it takes the other
			makeLate(late)
			err := s.commit(n, tx)
			wantError(t, err, kv.ErrConflict)
			return err
		}
		return s.commit(n, tx)
	})
	s.wantPop(s.p.PopMin, "a")
	s.wantLeft("what is left", "before a", "b", "c")
}

// makeLate makes late commits, which may fail.
func makeLate(list []*meddledTransaction) {
	for _, tx := range list {
		_, _ = tx.Transaction.Commit().Get()
	}
}

// interferences are what another process can do in the middle of a staged pop.
var interferences = map[string]func(s *stagedFixture, other *fdbpq.Popper) (fdbpq.Item, error){
	"plain pop": func(s *stagedFixture, _ *fdbpq.Popper) (fdbpq.Item, error) { return s.take(s.q.PopMin) },
	"pop":       func(s *stagedFixture, other *fdbpq.Popper) (fdbpq.Item, error) { return other.PopMin(s.ctx) },
	"serve": func(s *stagedFixture, other *fdbpq.Popper) (fdbpq.Item, error) {
		return fdbpq.Item{}, other.Serve(s.ctx)
	},
	"time": func(s *stagedFixture, other *fdbpq.Popper) (fdbpq.Item, error) {
		s.clock.advance(fdbpq.RequestLife + fdbpq.AnswerLife)
		return fdbpq.Item{}, other.Serve(s.ctx)
	},
	"time and pop": func(s *stagedFixture, other *fdbpq.Popper) (fdbpq.Item, error) {
		s.clock.advance(fdbpq.RequestLife + fdbpq.AnswerLife)
		return other.PopMin(s.ctx)
	},
}

// interference is one of them, before a commit.
type interference struct {
	name   string
	at     int
	served bool
}

// Whatever others do between the reads of a pop and its commit, no item is popped twice, and
// none is lost.
func TestInterference(t *testing.T) {
	var list []interference
	for name := range interferences {
		for at := 1; at <= 4; at++ {
			list = append(list, interference{name, at, false}, interference{name, at, true})
		}
	}
	inParallel(list, func(i interference) {
		s := newStagedFixture(t)
		s.served = i.served
		what := fmt.Sprintf("%+v", i)
		other := fdbpq.NewPopper(s.db, s.q)
		s.clock.give(other)
		s.clock.stepping(fdbpq.MaxPatience / 4)
		var got []string
		note := func(item fdbpq.Item, err error) {
			switch {
			case err != nil && !errors.Is(err, fdbpq.ErrEmpty) && !kv.Retryable(err):
				t.Errorf("%s: %v", what, err)
			case item.Value != nil:
				got = append(got, string(item.Value))
			}
		}
		s.popper(nil, func(n int, tx kv.Transaction) error {
			if n == 1 && i.at > 1 {
				return kv.ErrConflict
			}
			if n == i.at {
				note(interferences[i.name](s, other))
			}
			return s.commit(n, tx)
		})
		note(s.p.PopMin(s.ctx))
		s.clock.advance(fdbpq.RequestLife + fdbpq.AnswerLife)
		for {
			item, err := other.PopMin(s.ctx)
			note(item, err)
			if err != nil {
				break
			}
		}
		slices.Sort(got)
		wantList(t, what, got, "a", "b", "c")
		wantEqual(t, what+": length", s.length(s.q), 0)
	})
}

// Nobody is told "empty" if there is a push meanwhile, and a request that is withdrawn
// meanwhile gets nothing.
func TestServingMeetsPushAndWithdrawal(t *testing.T) {
	f := onMem(t)
	q := f.queue("meets")
	still, moving := newClock(time.Now()), newClock(time.Now())
	moving.stepping(fdbpq.MaxPatience / 4)
	waiting := fdbpq.NewPopper(f.db, q)
	still.give(waiting)

	f.line(waiting, fdbpq.Front) // dead, so that the next one waits behind it
	ctx, cancel := context.WithCancel(f.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := waiting.PopMin(ctx)
		wantError(t, err, context.Canceled)
	})
	for f.staged(waiting).Requests < 2 {
		runtime.Gosched()
	}
	p := fdbpq.NewPopper(&meddled{Database: f.db, write: func(n int, tx kv.Transaction) error {
		switch n {
		case 2: // serving, which found nothing
			f.push(q, 1, "a")
			f.push(q, 2, "b")
			err := commitNow(tx)
			wantError(t, err, kv.ErrConflict)
			return err
		case 3: // serving all three, for the second time
			cancel()
			wg.Wait()
			err := commitNow(tx)
			wantError(t, err, kv.ErrConflict)
			return err
		}
		return commitNow(tx)
	}}, q)
	moving.give(p)
	f.wantPop(p.PopMin, "b") // the dead one has the other
	f.wantStaged(p, 0, 1, 1, 1)
	wantEqual(t, "length", f.length(q), 0)
}
