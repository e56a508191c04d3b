package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// clock is a clock that moves when told to, and by step each time it is read.
type clock struct {
	micros, step atomic.Int64
}

func newClock(at time.Time) *clock {
	c := &clock{}
	c.micros.Store(at.UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Add(c.step.Load())) }
func (c *clock) advance(d time.Duration)  { c.micros.Add(d.Microseconds()) }
func (c *clock) stepping(d time.Duration) { c.step.Store(d.Microseconds()) }
func (c *clock) give(ps ...*fdbpq.Popper) {
	for _, p := range ps {
		p.SetNow(c.now)
	}
}

// onFaults is a fixture in a store that fails when told to.
func onFaults(t *testing.T, o faultkv.Options) (*fixture, *faultkv.DB) {
	db := faultkv.New(memkv.New(memkv.Options{}), o)
	return newFixture(t, db, fdbpq.RawValues), db
}

// fill pushes values with priorities 0, 1, 2...
func (f *fixture) fill(q *fdbpq.PriorityQueue, values ...string) {
	f.Helper()
	for i, value := range values {
		f.push(q, int64(i), value)
	}
}

// line registers requests of pops whose owners are gone.
func (f *fixture) line(p *fdbpq.Popper, ends ...fdbpq.End) {
	f.Helper()
	for _, end := range ends {
		write(f, func(tx kv.Transaction) {
			if err := p.Line(tx, end); err != nil {
				f.Fatalf("Line: %v", err)
			}
		})
	}
}

func (f *fixture) staged(p *fdbpq.Popper) fdbpq.Staged {
	f.Helper()
	s, err := kv.ReadTransact(f.ctx, f.db, p.Staged)
	if err != nil {
		f.Fatalf("Staged: %v", err)
	}
	return s
}

func (f *fixture) wantStaged(p *fdbpq.Popper, requests, answers, values, claims int) {
	f.Helper()
	s := f.staged(p)
	if got, want := [4]int{s.Requests, s.Answers, s.Values, s.Claims}, [4]int{requests, answers, values, claims}; got != want {
		f.Errorf("requests, answers, values, claims are %v, want %v", got, want)
	}
}

func (f *fixture) wantPop(pop func(context.Context) (fdbpq.Item, error), want string) {
	f.Helper()
	item, err := pop(f.ctx)
	if err != nil || string(item.Value) != want {
		f.Errorf("popped %.100q (error %v), want %.100q", item.Value, err, want)
	}
}

func (f *fixture) wantEmpty(pop func(context.Context) (fdbpq.Item, error)) {
	f.Helper()
	if item, err := pop(f.ctx); !errors.Is(err, fdbpq.ErrEmpty) {
		f.Errorf("popped %.100q (error %v), want ErrEmpty", item.Value, err)
	}
}

func TestPopperAlone(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, p := f.queue("alone"), fdbpq.NewPopper(f.db, f.queue("alone"))
		f.wantEmpty(p.PopMin)
		f.fill(q, "a", "b", "c", "d")
		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMax, "d")
		f.wantPop(p.PopMax, "c")
		f.wantPop(p.PopMin, "b")
		f.wantEmpty(p.PopMax)
		f.wantStaged(p, 0, 0, 0, 1)

		fifo := f.fifoQueue("alone")
		p = fdbpq.NewPopper(f.db, fifo)
		for _, value := range []string{"a", "b"} {
			f.apply(opPush(fifo, 0, value))
		}
		_, err := p.PopMax(f.ctx)
		wantError(f.T, err, fdbpq.ErrOp)
		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMin, "b")
		f.wantEmpty(p.PopMin)
	})
}

// A pop that loses to another registers, serves the line, and collects.
func TestPopperThatLost(t *testing.T) {
	f, db := onFaults(t, faultkv.Options{})
	q := f.queue("lost")
	p := fdbpq.NewPopper(f.db, q)
	f.fill(q, "a", "b", "c")
	for _, step := range []struct {
		pop  func(context.Context) (fdbpq.Item, error)
		want string
	}{{p.PopMin, "a"}, {p.PopMax, "c"}, {p.PopMax, "b"}} {
		db.Next(faultkv.Conflict)
		f.wantPop(step.pop, step.want)
		f.wantStaged(p, 0, 0, 0, 1)
	}
	f.wantEmpty(p.PopMin)
	f.line(p, fdbpq.Front) // so that the next one has to wait
	p = fdbpq.NewPopper(f.db, q)
	c := newClock(time.Now())
	c.stepping(fdbpq.MaxPatience / 2)
	c.give(p)
	f.wantEmpty(p.PopMax)
	f.wantStaged(p, 0, 1, 0, 1)
}

// Headers and the rest of a long value go with the item, and return with it.
func TestPopperLongItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("long"), f.fifoQueue("long")
		c := newClock(time.Now())
		c.stepping(fdbpq.MaxPatience / 2)
		long := fdbpq.Message{
			Value:   []byte(strings.Repeat("\x00long", 60_000)),
			Headers: map[string][]string{"A": {"1", "2"}, "B": {""}},
		}
		for _, target := range []fdbpq.Target{q, fifo} {
			p := fdbpq.NewPopper(f.db, target)
			c.give(p)
			for range 2 {
				f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: target, Message: long})
			}
			f.line(p, fdbpq.Front)
			for range 2 {
				item, err := p.PopMin(f.ctx)
				if err != nil || string(item.Value) != string(long.Value) {
					f.Errorf("popped %d bytes (error %v), want %d", len(item.Value), err, len(long.Value))
				}
				wantEqual(f.T, "headers", item.Headers, long.Headers)
				c.advance(fdbpq.AnswerLife)
			}
			f.wantEmpty(p.PopMin)
			f.wantStaged(p, 0, 0, 0, 1)
		}
	})
}

// A newcomer waits behind those registered before it, and each gets an item from the end it
// asked for.
func TestNewcomersDoNotOvertake(t *testing.T) {
	f := onMem(t)
	q := f.queue("order")
	first, newcomer := fdbpq.NewPopper(f.db, q), fdbpq.NewPopper(f.db, q)
	newClock(time.Now()).give(first, newcomer) // it stands still, so patience does not end
	f.fill(q, "a", "b", "c", "d")
	f.line(first, fdbpq.Front, fdbpq.Back)
	var wg sync.WaitGroup
	wg.Go(func() { f.wantPop(newcomer.PopMin, "b") })
	for f.staged(first).Requests < 3 {
		runtime.Gosched()
	}
	wantEqual(t, "ends", f.staged(first).Ends, []fdbpq.End{fdbpq.Front, fdbpq.Back, fdbpq.Front})
	if err := first.Serve(f.ctx); err != nil {
		t.Errorf("Serve: %v", err)
	}
	wg.Wait()
	f.wantStaged(first, 0, 2, 2, 1)
	wantEqual(t, "length", f.length(q), 1)
}

// An item given to a pop whose owner is gone returns to its old place, and is counted once.
func TestItemsOfTheDeadComeBack(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("dead")
		c := newClock(time.Now())
		p := fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.fill(q, "a", "b", "c", "d")
		f.line(p, fdbpq.Front, fdbpq.Back)
		if err := p.Serve(f.ctx); err != nil {
			f.Errorf("Serve: %v", err)
		}
		f.wantStaged(p, 0, 2, 2, 0)
		wantEqual(f.T, "length", f.length(q), 2)
		f.wantPop(p.PopMin, "b")
		c.advance(fdbpq.AnswerLife - 1)
		f.wantPop(p.PopMin, "c")
		f.wantEmpty(p.PopMin)
		f.push(q, 9, "e")
		f.push(q, 9, "f")
		c.advance(fdbpq.SweepEvery + 1)
		f.wantPop(p.PopMin, "a")
		f.wantStaged(p, 0, 0, 0, 1)
		wantEqual(f.T, "length", f.length(q), 3)
		f.wantPop(p.PopMax, "f")
		f.wantPop(p.PopMax, "e")
		f.wantPop(p.PopMax, "d")
		f.wantEmpty(p.PopMin)
	})
}

// Plain pops that find too few items bring back those of dead pops.
func TestPlainPopsFindItemsOfTheDead(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("plain")
		c := newClock(time.Now())
		p := fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.fill(q, "a", "b")
		f.line(p, fdbpq.Front)
		if err := p.Serve(f.ctx); err != nil {
			f.Errorf("Serve: %v", err)
		}
		wantList(f.T, "before its time", f.values(q.PopMin), "b")

		c.advance(-time.Hour)
		f.fill(q, "c", "d")
		f.line(p, fdbpq.Front)
		if err := p.Serve(f.ctx); err != nil {
			f.Errorf("Serve: %v", err)
		}
		wantList(f.T, "after it", f.values(q.PopMin), "c", "d")
	})
}

// Expired requests are removed, and get nothing.
func TestExpiredRequests(t *testing.T) {
	f := onMem(t)
	q := f.queue("expired")
	c := newClock(time.Now())
	p := fdbpq.NewPopper(f.db, q)
	c.give(p)
	f.fill(q, "a", "b", "c")
	f.line(p, fdbpq.Front, fdbpq.Front)
	c.advance(fdbpq.RequestLife + time.Microsecond)
	f.line(p, fdbpq.Back)
	if err := p.Serve(f.ctx); err != nil {
		t.Errorf("Serve: %v", err)
	}
	f.wantStaged(p, 0, 1, 1, 0)
	wantList(t, "what is left", f.values(q.PopMin), "a", "b")
}

// With many Poppers at both ends, plain pops and pushes, all at once, every item comes out
// once.
func TestManyPoppers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		const workers, each = 6, 40
		q, fifo := f.queue("many"), f.fifoQueue("many")
		shared := fdbpq.NewPopper(f.db, q)
		var left atomic.Int64
		left.Store(2 * workers * each)
		var seen sync.Map
		var wg sync.WaitGroup
		drain := func(pop func(context.Context) (fdbpq.Item, error)) {
			wg.Go(func() {
				for left.Load() > 0 {
					item, err := pop(f.ctx)
					if errors.Is(err, fdbpq.ErrEmpty) {
						if left.Load() == workers*each {
							return // the other queue's
						}
						continue
					}
					if err != nil {
						f.Errorf("pop: %v", err)
						return
					}
					if _, twice := seen.LoadOrStore(string(item.Value), true); twice {
						f.Errorf("%q was popped twice", item.Value)
					}
					left.Add(-1)
				}
			})
		}
		plain := func(ctx context.Context) (fdbpq.Item, error) { return kv.Transact(ctx, f.db, q.PopMax) }
		for worker := range workers {
			wg.Go(func() {
				b := fdbpq.NewBatcher(f.db, f.Keyspace)
				for i := range each {
					for name, target := range map[string]fdbpq.Target{"pq": q, "q": fifo} {
						if _, err := b.Apply(f.ctx, []fdbpq.Op{opPush(target, int64(i%3), fmt.Sprint(name, worker, "/", i))}); err != nil {
							f.Errorf("push: %v", err)
						}
					}
				}
			})
			p := fdbpq.NewPopper(f.db, q)
			drain(p.PopMin)
			drain(p.PopMax)
			drain(shared.PopMin)
			drain(fdbpq.NewPopper(f.db, fifo).PopMin)
		}
		drain(plain)
		for range 2 { // processes of an earlier version
			p := fdbpq.NewPopper(f.db, q)
			drain(func(ctx context.Context) (fdbpq.Item, error) { return p.PopAsBefore(ctx, fdbpq.Front) })
		}
		wg.Wait()
		wantEqual(f.T, "items not popped", left.Load(), 0)
		wantEqual(f.T, "length", f.length(q)+f.length(fifo), 0)
	})
}

// More falls due than one transaction handles, and the first of it stays back for longer. The rest is
// found nevertheless, in line and without.
func TestPoppersFindWhatIsDueLate(t *testing.T) {
	for _, inLine := range []bool{false, true} {
		t.Run(fmt.Sprint("line=", inLine), func(t *testing.T) {
			f := onMem(t)
			q := f.queue("jobs")
			clock := newClock(time.Now())
			f.batcher.SetNow(clock.now)
			f.configure(q, func(s *fdbpq.Settings) { s.Backoff = []time.Duration{time.Hour} })
			var pushes, leases []fdbpq.Op
			for range 3 * fdbpq.DuePage {
				pushes = append(pushes, opPush(q, 1, "stays"))
				leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})
			}
			f.apply(pushes...)
			f.apply(leases...)
			f.push(q, 1, "late")
			token := f.apply(leases[0])[0].Lease.Token
			f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: token, Delay: time.Minute})
			clock.advance(2 * time.Minute)
			p := fdbpq.NewPopper(f.db, q)
			clock.give(p)
			if inLine {
				f.line(p, fdbpq.Front)
				for range 4 {
					f.serve(p)
				}
				f.wantStaged(p, 0, 1, 1, 0)
				return
			}
			f.wantPop(p.PopMin, "late")
			f.wantEmpty(p.PopMin)
		})
	}
}
