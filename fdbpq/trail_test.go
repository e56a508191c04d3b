package fdbpq_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// trailed is a queue that keeps attempts.
type trailed struct {
	*fixture
	clock *clock
	q     fdbpq.Target
}

// onTrails runs a test on every engine, on a priority and a FIFO queue that keep so many attempts,
// and checks the invariants.
func onTrails(t *testing.T, most int64, run func(f *trailed)) {
	onEngines(t, func(f *fixture) {
		for _, fifo := range []bool{false, true} {
			run(newTrailed(f, f.queueOf(fifo, "jobs"), most))
			f.check()
		}
	})
}

func newTrailed(f *fixture, q fdbpq.Target, most int64) *trailed {
	s := &trailed{fixture: f, clock: f.setClock(), q: q}
	s.set(func(s *fdbpq.Settings) { s.Trail, s.AckWait = most, time.Minute })
	return s
}

func newTrailedOnMem(t *testing.T, most int64) *trailed {
	f := onMem(t)
	return newTrailed(f, f.queue("jobs"), most)
}

// set changes the settings of the queue.
func (f *trailed) set(change func(*fdbpq.Settings)) {
	f.Helper()
	f.configure(f.q, change)
}

// other is another queue of the same kind.
func (f *trailed) other(name string) fdbpq.Target {
	return f.queueOf(f.q.Layout().Fifo, name)
}

// one pushes an item, and returns its id.
func (f *trailed) one(value string) fdbpq.ID {
	f.Helper()
	return f.done(opPush(f.q, 1, value)).Item.ID
}

// lease leases the first item of the queue, as "me".
func (f *trailed) lease() fdbpq.Token { return f.leaseIn(f.q) }

func (f *trailed) leaseIn(q fdbpq.Target) fdbpq.Token {
	f.Helper()
	return f.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Holder: "me"}).Lease.Token
}

// end ends a lease in some way.
func (f *trailed) end(token fdbpq.Token, how fdbpq.Op) fdbpq.Result {
	f.Helper()
	how.Queue, how.Token = f.q, token
	return f.done(how)
}

// fail leases the first item, and fails two seconds later.
func (f *trailed) fail(reason string) {
	f.Helper()
	token := f.lease()
	f.clock.advance(2 * time.Second)
	f.end(token, nakFor(reason))
}

// runOut leases the first item, and does nothing about it until its lease is over.
func (f *trailed) runOut() fdbpq.Token {
	f.Helper()
	token := f.lease()
	f.clock.advance(time.Minute)
	f.sweep()
	return token
}

func (f *trailed) sweep() { f.sweepAll(f.clock.now(), f.q) }

// Ends of leases, without the lease.
func nakFor(reason string) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpNak, Reason: reason} }

var (
	snooze = fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true}
	ack    = fdbpq.Op{Kind: fdbpq.OpAck}
	extend = fdbpq.Op{Kind: fdbpq.OpExtend}
	term   = fdbpq.Op{Kind: fdbpq.OpTerm, Reason: "given up"}
)

// written returns attempts as text.
func written(all []trail.Attempt) string {
	var list []string
	for _, a := range all {
		text := fmt.Sprintf("%d.%d %s", a.Life, a.Number, a.How)
		if !a.From.IsZero() {
			text += fmt.Sprint(" after ", a.To.Sub(a.From))
		}
		if a.Holder != "" {
			text += " by " + a.Holder
		}
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// wantTrail checks the attempts of a job, wherever it is.
func (f *trailed) wantTrail(job fdbpq.ID, want string) {
	f.Helper()
	found := f.done(named(fdbpq.OpGet, f.q, job)).Found
	wantEqual(f.T, "attempts", written(found.Attempts()), want)
}

// numbersOf returns the numbers of the attempts of this life that are kept of an item.
func (f *trailed) numbersOf(id fdbpq.ID) (numbers []int64) {
	f.Helper()
	for _, a := range f.done(named(fdbpq.OpGet, f.q, id)).Found.Attempts() {
		numbers = append(numbers, a.Number)
	}
	return numbers
}

// keys returns how many attempts are kept in a queue, each in a key of its own.
func (f *fixture) attemptKeys(q fdbpq.Target) int {
	f.Helper()
	pairs := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(q.Layout().KindRange(codec.KindAttempt), kv.RangeOptions{}).Get()
	}))
	return len(pairs)
}

// Each delivery that ends with a negative acknowledgement, or whose time is over, is an attempt,
// with when and how, its holder and its reason. Whoever looks at the item finds the same, in each
// state. An extension ends nothing.
func TestAttempts(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		job := f.one("job")
		f.one("another")
		f.wantTrail(job, "")
		f.fail("disk full")
		f.runOut()
		token := f.lease()
		f.clock.advance(40 * time.Second)
		f.end(token, extend)
		f.clock.advance(40 * time.Second)
		f.end(token, nakFor("line\nbreak"))
		want := "1.1 nak after 2s by me: disk full; 1.2 ran out after 1m0s by me; " +
			"1.3 nak after 1m20s by me: line break"

		for _, in := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Leased, fdbpq.Delayed} {
			switch in {
			case fdbpq.Leased:
				token = f.lease()
			case fdbpq.Delayed:
				late := snooze
				late.Delay = time.Hour
				f.end(token, late)
			}

			f.wantTrail(job, want)
			read := readItems(f.fixture, f.q, job)[0]
			wantEqual(f.T, "of items read", written(read.Attempts()), want)
			wantEqual(f.T, "state", read.State, in)
			walk := fdbpq.Browse{State: in, MaxItems: 1, Trail: true}
			items, _ := f.walk(walk, f.q, f.clock.now())
			wantEqual(f.T, "of a walk", written(items[0].Attempts()), want)
			walk.Trail = false
			items, _ = f.walk(walk, f.q, f.clock.now())
			wantEqual(f.T, "of a walk that does not ask", written(items[0].Attempts()), "")
		}
	})
}

// A delivery that does not count is no attempt: its number goes to the next one.
func TestUncountedIsNoAttempt(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		job := f.one("job")
		f.fail("first")

		f.end(f.lease(), snooze)
		f.lease()
		f.done(named(fdbpq.OpRelease, f.q, job))
		f.wantTrail(job, "1.1 nak after 2s by me: first")

		f.fail("second")
		f.wantTrail(job, "1.1 nak after 2s by me: first; 1.2 nak after 2s by me: second")
	})
}

// A lease that has run out and is ended late is one attempt: as it ended, if that counts, and else
// none. If it is extended late, it has not ended.
func TestLateEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		end  fdbpq.Op
		want string
	}{
		{"nak", nakFor("late"), "1.1 nak after 2s by me: first; 1.2 nak: late"},
		{"snooze", snooze, "1.1 nak after 2s by me: first"},
		{"extended", extend, "1.1 nak after 2s by me: first"},
		{"term", term, "1.1 nak after 2s by me: first; 1.2 term: given up"},
		{"done", ack, "1.1 nak after 2s by me: first; 1.2 done"},
	} {
		for _, backoff := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(test.name, backoff), func(t *testing.T) {
				onTrails(t, 8, func(f *trailed) {
					job := f.one("job")
					f.fail("first")
					f.set(func(s *fdbpq.Settings) {
						s.Keep = time.Hour
						if backoff > 0 {
							s.Backoff = []time.Duration{backoff}
						}
					})
					late := f.runOut()
					f.wantTrail(job,
						"1.1 nak after 2s by me: first; 1.2 ran out after 1m0s by me")

					f.end(late, test.end)

					f.wantTrail(job, test.want)
					if test.end.Kind == fdbpq.OpExtend {
						f.end(late, ack)
						f.wantTrail(job, test.want+"; 1.2 done")
					}
					if test.end.Kind != fdbpq.OpNak {
						wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
					}
				})
			})
		}
	}
}

// The first attempts and the newest are kept, as many as the setting says. Late ends that do not
// count leave a place free.
func TestFirstAndNewestAttempts(t *testing.T) {
	for most, want := range map[int64]string{
		1: "[1]", 2: "[1 20]", 3: "[1 19 20]", 16: "[1 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20]",
	} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			onTrails(t, most, func(f *trailed) {
				job := f.one("job")
				for n := range 20 {
					f.fail(fmt.Sprint("failure ", n))
				}

				wantEqual(f.T, "numbers", fmt.Sprint(f.numbersOf(job)), want)
				wantEqual(f.T, "keys", f.attemptKeys(f.q), int(most))

				f.end(f.runOut(), snooze)
				f.fail("once more")
				if most > 1 {
					numbers := f.numbersOf(job)
					wantEqual(f.T, "the newest", numbers[len(numbers)-1], 21)
				}
				f.check()
				f.end(f.lease(), ack)
				wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
			})
		})
	}
}

// A dead letter carries the attempts, the last one included if it counts, and leaves none behind.
// It is found as the job in its first queue.
func TestAttemptsOfDeadLetters(t *testing.T) {
	before := "1.1 nak after 2s by me: first; 1.2 ran out after 1m0s by me"
	uncounted := term
	uncounted.Uncounted = true
	for _, test := range []struct {
		name string
		end  fdbpq.Op // none if the lease runs out
		want string
	}{
		{"nak", nakFor("last"), before + "; 1.3 nak after 5s by me: last"},
		{"term", term, before + "; 1.3 term after 5s by me: given up"},
		{"term that does not count", uncounted, before},
		{"ran out", fdbpq.Op{}, before + "; 1.3 ran out after 1m0s by me"},
	} {
		t.Run(test.name, func(t *testing.T) {
			onTrails(t, 8, func(f *trailed) {
				f.set(func(s *fdbpq.Settings) { s.MaxDeliver = 3 })
				job := f.one("job")
				f.fail("first")
				f.runOut()
				token := f.lease()
				f.clock.advance(5 * time.Second)

				if test.end.Kind != 0 {
					f.end(token, test.end)
				} else {
					f.clock.advance(time.Minute)
					f.sweep()
				}

				f.wantTrail(job, test.want)
				dead := f.done(op(opPopMin, f.other("jobs-dead"))).Item
				wantEqual(f.T, "in the header", written(trail.Parse(dead.Headers[trail.Header])),
					test.want)
				wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
			})
		})
	}
}

// A redrive begins a new life, and keeps the attempts of those before, those of the dead-letter
// queue among them. A second death has all of them, as far as they fit.
func TestLivesOfAJob(t *testing.T) {
	onTrails(t, 4, func(f *trailed) {
		dead := f.other("jobs-dead")
		f.set(func(s *fdbpq.Settings) { s.MaxDeliver = 2 })
		f.configure(dead, func(s *fdbpq.Settings) { s.Trail = 4 })
		job := f.one("job")
		f.fail("a")
		f.fail("b")
		token := f.leaseIn(dead)
		f.done(fdbpq.Op{Kind: fdbpq.OpNak, Queue: dead, Token: token, Reason: "not yet"})
		want := "1.1 nak after 2s by me: a; 1.2 nak after 2s by me: b; 2.1 nak after 0s by me: " +
			"not yet"
		f.wantTrail(job, want)

		back := f.done(named(fdbpq.OpRedriveItem, dead, job))

		wantEqual(f.T, "job", back.Item.Job(), job)
		f.wantTrail(job, want)
		wantEqual(f.T, "keys of dead letters", f.attemptKeys(dead), 0)
		f.fail("c")
		f.wantTrail(job, want+"; 3.1 nak after 2s by me: c")
		wantEqual(f.T, "keys", f.attemptKeys(f.q), 1)

		f.fail("d")
		f.wantTrail(job, "1.1 nak after 2s by me: a; 2.1 nak after 0s by me: not yet; "+
			"3.1 nak after 2s by me: c; 3.2 nak after 2s by me: d")
		wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
	})
}

// A header that a job carries stays with it through queues that keep no attempts.
func TestLivesWithoutTheSetting(t *testing.T) {
	onTrails(t, 4, func(f *trailed) {
		dead := f.other("jobs-dead")
		job := f.one("job")
		f.end(f.lease(), term)
		want := "1.1 term after 0s by me: given up"
		f.set(func(s *fdbpq.Settings) { s.Trail = 0 })

		f.done(named(fdbpq.OpRedriveItem, dead, job))
		f.fail("not kept")
		f.wantTrail(job, want)
		f.end(f.lease(), term)
		f.wantTrail(job, want)

		wantEqual(f.T, "keys left", f.attemptKeys(f.q)+f.attemptKeys(dead), 0)
	})
}

// A kept job has the attempts before it was done, and that one. If it is run again, they are those
// of an earlier life.
func TestAttemptsOfKeptJobs(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		f.set(func(s *fdbpq.Settings) { s.Keep = time.Hour })
		job := f.one("job")
		f.fail("a")
		token := f.lease()
		f.clock.advance(3 * time.Second)
		f.end(token, ackWith(nil, token, "result"))
		want := "1.1 nak after 2s by me: a; 1.2 done after 3s by me"
		f.wantTrail(job, want)
		wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
		wantEqual(f.T, "of a walk", written(f.finishedJobs(f.q, f.clock.now())[0].Attempts()), want)

		f.done(named(fdbpq.OpRedriveItem, f.q, job))
		f.wantTrail(job, want)
		f.fail("b")
		f.clock.advance(time.Second)
		f.end(f.lease(), ack)
		f.wantTrail(job, want+"; 2.1 nak after 2s by me: b; 2.2 done after 0s by me")

		f.done(named(fdbpq.OpRedriveItem, f.q, job))
		f.clock.advance(time.Second)
		f.end(f.lease(), term)
		f.wantTrail(job, want+"; 2.1 nak after 2s by me: b; 2.2 done after 0s by me; "+
			"3.1 term after 0s by me: given up")
	})
}

// Where only one attempt is kept, a kept job has the first, and that it was done.
func TestFirstAttemptOfKeptJobs(t *testing.T) {
	onTrails(t, 1, func(f *trailed) {
		f.set(func(s *fdbpq.Settings) { s.Keep = time.Hour })
		job := f.one("job")
		f.fail("a")
		f.fail("b")

		f.end(f.lease(), ack)

		f.wantTrail(job, "1.1 nak after 2s by me: a; 1.3 done after 0s by me")
		f.done(named(fdbpq.OpRedriveItem, f.q, job))
		f.wantTrail(job, "1.1 nak after 2s by me: a; 1.3 done after 0s by me")
	})
}

// Where only one attempt is kept, dead letters have the last one too, so lives are numbered. A
// dead-letter queue that keeps fewer shortens nothing.
func TestLivesWithFewAttempts(t *testing.T) {
	onTrails(t, 1, func(f *trailed) {
		f.set(func(s *fdbpq.Settings) { s.MaxDeliver = 2 })
		dead := f.other("jobs-dead")
		f.configure(dead, func(s *fdbpq.Settings) { s.Trail = 1 })
		job := f.one("job")
		for _, reason := range []string{"a", "b", "c"} {
			f.fail(reason)
			f.fail(reason)
			f.done(named(fdbpq.OpRedriveItem, dead, job))
		}

		f.wantTrail(job, "1.1 nak after 2s by me: a; 3.2 nak after 2s by me: c")
	})
}

// A job has no more attempts than the queue keeps, however many lives it has: the first, and the
// newest. That it was done at once is one of them.
func TestAttemptsOfManyLives(t *testing.T) {
	for most, want := range map[int64][2]string{
		2:  {"[1.1 2.3]", "[1.1 3.1]"},
		4:  {"[1.1 2.1 2.2 2.3]", "[1.1 2.3 2.4 3.1]"},
		16: {"[1.1 1.2 1.3 2.1 2.2 2.3]", "[1.1 1.2 1.3 2.1 2.2 2.3 2.4 3.1]"},
	} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			onTrails(t, most, func(f *trailed) {
				f.set(func(s *fdbpq.Settings) { s.Keep = time.Hour })
				job := f.one("job")
				told := func() string {
					var list []string
					for _, a := range f.done(named(fdbpq.OpGet, f.q, job)).Found.Attempts() {
						list = append(list, fmt.Sprintf("%d.%d", a.Life, a.Number))
					}
					return fmt.Sprint(list)
				}
				f.fail("a")
				f.fail("a")
				f.end(f.lease(), term)
				f.done(named(fdbpq.OpRedriveItem, f.other("jobs-dead"), job))
				for range 3 {
					f.fail("b")
				}
				wantEqual(f.T, "in the second life", told(), want[0])
				for _, item := range readItems(f.fixture, f.q, f.list(f.q)[0].ID) {
					wantEqual(f.T, "in a list", len(item.Attempts()), strings.Count(want[0], "."))
				}

				f.end(f.lease(), term)
				f.done(named(fdbpq.OpRedriveItem, f.other("jobs-dead"), job))
				f.end(f.lease(), ack)
				wantEqual(f.T, "once it is done", told(), want[1])
			})
		})
	}
}

// However many attempts items have, what removes or moves many of them at once does as many as fit
// into a transaction, and the others later.
func TestManyAttemptsHaveRoom(t *testing.T) {
	const items = 1000
	each := func(op func(fdbpq.ID) fdbpq.Op) func(*trailed, []fdbpq.ID) []fdbpq.Op {
		return func(_ *trailed, ids []fdbpq.ID) (ops []fdbpq.Op) {
			for _, id := range ids {
				ops = append(ops, op(id))
			}
			return ops
		}
	}
	ended := func(how fdbpq.Op) func(*trailed, []fdbpq.ID) []fdbpq.Op {
		return func(f *trailed, _ []fdbpq.ID) (ops []fdbpq.Op) {
			for _, token := range f.leaseSome(f.q, items, time.Hour) {
				how.Token = token
				ops = append(ops, how)
			}
			return ops
		}
	}
	for name, way := range map[string]func(*trailed, []fdbpq.ID) []fdbpq.Op{
		"moved": each(func(id fdbpq.ID) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpMove, ID: id, Priority: 2}
		}),
		"removed": each(func(id fdbpq.ID) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpRemove, ID: id}
		}),
		"popped":       each(func(fdbpq.ID) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpPop} }),
		"acknowledged": ended(ack),
		"given up":     ended(term),
	} {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			s := newTrailed(f, f.queue(strings.Repeat("q", 128)), 16)
			ids := s.failed(items, 17)
			ops := way(s, ids)
			for i := range ops {
				ops[i].Queue = s.q
			}

			done := 0
			for turns := 0; len(ops) > 0 && turns < items; turns++ {
				var left []fdbpq.Op
				for i, r := range s.apply(ops...) {
					if errors.Is(r.Err, fdbpq.ErrNoRoom) {
						left = append(left, ops[i])
						continue
					}
					wantError(t, r.Err, nil)
					done++
				}
				ops = left
			}
			wantEqual(t, "operations that were done", done, items)
			f.check()
		})
	}
}

// A push to a full queue makes room for itself although the items that go have many attempts.
func TestRoomBesideAttempts(t *testing.T) {
	f := onMem(t)
	s := newTrailed(f, f.queue(strings.Repeat("q", 128)), 16)
	s.failed(1200, 17)
	s.set(func(s *fdbpq.Settings) { s.MaxItems, s.Discard = 10, fdbpq.DiscardOld })

	var err error
	for range 10 {
		if err = s.apply(opPush(s.q, 0, "new"))[0].Err; err == nil {
			break
		}
		wantError(t, err, fdbpq.ErrNoRoom)
	}
	wantError(t, err, nil)
	wantEqual(t, "length", f.length(f.queue(strings.Repeat("q", 128))), 10)
	f.check()
}

// failed pushes items, and writes as many attempts of each as there can be after some deliveries.
func (f *trailed) failed(items int, deliveries int64) (ids []fdbpq.ID) {
	f.Helper()
	for _, r := range f.apply(slices.Repeat([]fdbpq.Op{opPush(f.q, 1, "job")}, items)...) {
		ids = append(ids, r.Item.ID)
	}
	f.writeAttempts(ids, deliveries)
	return ids
}

// writeAttempts writes as many attempts of items as there can be after some deliveries.
func (f *trailed) writeAttempts(ids []fdbpq.ID, deliveries int64) {
	f.Helper()
	l := f.q.Layout()
	past := codec.History{Deliveries: deliveries, Fence: deliveries, Wait: time.Minute}
	value := codec.EncodeAttempt(&trail.Attempt{
		To: f.clock.now(), How: trail.Nak, Reason: strings.Repeat("r", trail.MaxReason),
		Holder: strings.Repeat("h", fdbpq.MaxHolder),
	})
	for some := range slices.Chunk(ids, 100) {
		write(f.fixture, func(tx kv.Transaction) {
			for _, id := range some {
				tx.Set(l.HistoryKey(&id), past.Encode())
				tx.Set(l.AttemptKey(&id, 1), value)
				for n := max(deliveries-14, 2); n <= deliveries; n++ {
					tx.Set(l.AttemptKey(&id, n), value)
				}
			}
		})
	}
	f.batcher = fdbpq.NewBatcher(f.db, f.Keyspace) // the old one knows of no histories
}

// The record of a job that was done at once has no header for that.
func TestDoneAtOnce(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		f.set(func(s *fdbpq.Settings) { s.Keep = time.Hour })
		job := f.one("job")

		f.end(f.lease(), ack)

		f.wantTrail(job, "1.1 done after 0s by me")
		wantEqual(f.T, "headers", len(f.finishedJobs(f.q, f.clock.now())[0].Headers), 0)
	})
}

// A job that moves takes its attempts along, ready or delayed, and leaves none behind.
func TestMovedAttempts(t *testing.T) {
	onEngines(t, func(fixture *fixture) {
		f := newTrailed(fixture, fixture.queue("jobs"), 3)
		for _, delay := range []time.Duration{0, time.Hour} {
			job := f.one("job")
			for _, reason := range []string{"a", "b", "c"} {
				f.fail(reason)
			}
			last := nakFor("d")
			last.Delay = delay
			f.end(f.lease(), last)
			want := "1.1 nak after 2s by me: a; 1.3 nak after 2s by me: c; " +
				"1.4 nak after 0s by me: d"
			f.wantTrail(job, want)

			place := f.done(named(fdbpq.OpMove, f.q, job)).Item.ID

			wantEqual(f.T, "moved", place == job, false)
			f.wantTrail(job, want)
			wantEqual(f.T, "keys", f.attemptKeys(f.q), 3)
			f.check()
			f.done(named(fdbpq.OpRemove, f.q, job))
			wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
		}
	})
}

// However an item leaves its queue, its attempts go with it, and those of others stay.
func TestNoAttemptIsLeft(t *testing.T) {
	sweepLater := func(f *trailed, _ fdbpq.ID) {
		f.clock.advance(2 * time.Hour)
		f.sweep()
	}
	leaseAnd := func(end fdbpq.Op) func(*trailed, fdbpq.ID) {
		return func(f *trailed, _ fdbpq.ID) { f.end(f.lease(), end) }
	}
	edit := func(kind fdbpq.OpKind) func(*trailed, fdbpq.ID) {
		return func(f *trailed, id fdbpq.ID) { f.done(named(kind, f.q, id)) }
	}
	delay := nakFor("later")
	delay.Delay = 5 * time.Hour

	for _, test := range []struct {
		name   string
		ttl    time.Duration
		leaves func(f *trailed, id fdbpq.ID)
		gone   bool // the others as well
	}{
		{name: "acknowledged", leaves: leaseAnd(ack)},
		{name: "acknowledged late", leaves: func(f *trailed, _ fdbpq.ID) {
			f.end(f.runOut(), ack)
		}},
		{name: "popped", leaves: func(f *trailed, _ fdbpq.ID) { f.done(op(opPopMin, f.q)) }},
		{name: "removed", leaves: edit(fdbpq.OpRemove)},
		{name: "removed while it was leased", leaves: func(f *trailed, id fdbpq.ID) {
			f.lease()
			f.done(named(fdbpq.OpRemove, f.q, id))
		}},
		{name: "removed while it was delayed", leaves: func(f *trailed, id fdbpq.ID) {
			f.end(f.lease(), delay)
			f.done(named(fdbpq.OpRemove, f.q, id))
		}},
		{name: "dead", leaves: leaseAnd(term)},
		{name: "dead late", leaves: func(f *trailed, _ fdbpq.ID) { f.end(f.runOut(), term) }},
		{name: "dead of max_deliver", leaves: func(f *trailed, _ fdbpq.ID) {
			f.set(func(s *fdbpq.Settings) { s.MaxDeliver = 4 })
			f.end(f.lease(), nakFor("last"))
			f.set(func(s *fdbpq.Settings) { s.MaxDeliver = 0 })
		}},
		{name: "discarded", gone: true, leaves: func(f *trailed, _ fdbpq.ID) {
			f.set(func(s *fdbpq.Settings) { s.MaxItems, s.Discard = 1, fdbpq.DiscardOld })
			f.done(opPush(f.q, 0, "new"))
		}},
		{name: "discarded while it was delayed", gone: true, leaves: func(f *trailed, _ fdbpq.ID) {
			f.end(f.lease(), delay)
			f.set(func(s *fdbpq.Settings) { s.MaxItems, s.Discard = 1, fdbpq.DiscardOld })
			f.done(opPush(f.q, 0, "new"))
		}},
		{name: "expired", ttl: time.Hour, leaves: sweepLater},
		{name: "expired while it was delayed", ttl: time.Hour,
			leaves: func(f *trailed, id fdbpq.ID) {
				f.end(f.lease(), delay)
				sweepLater(f, id)
			}},
		{name: "expired while it was leased", ttl: time.Hour,
			leaves: func(f *trailed, id fdbpq.ID) {
				f.clock.advance(time.Hour - 10*time.Second)
				f.lease()
				sweepLater(f, id)
			}},
		{name: "expired before it was given back", ttl: time.Hour,
			leaves: func(f *trailed, _ fdbpq.ID) {
				f.clock.advance(time.Hour - 10*time.Second)
				token := f.lease()
				f.clock.advance(20 * time.Second)
				f.end(token, nakFor("late"))
			}},
		{name: "expired, and found by a pop", ttl: time.Hour,
			leaves: func(f *trailed, id fdbpq.ID) {
				l := f.q.Layout()
				expires := f.done(named(fdbpq.OpGet, f.q, id)).Item.Expires
				f.clock.advance(time.Hour)
				write(f.fixture, func(tx kv.Transaction) { // then only the pop knows
					tx.Clear(l.DueKey(expires, l.ExpiryKey(&id)))
				})
				wantEqual(f.T, "popped", string(f.done(op(opPopMin, f.q)).Item.Value), "stays")
				f.one("stays")
				f.fail("new")
			}},
		{name: "purged", gone: true, leaves: func(f *trailed, _ fdbpq.ID) {
			f.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: f.q})
		}},
		{name: "a lower setting", gone: true, leaves: func(f *trailed, _ fdbpq.ID) {
			f.set(func(s *fdbpq.Settings) { s.Trail = 7 })
		}},
		{name: "no setting", gone: true, leaves: func(f *trailed, _ fdbpq.ID) {
			f.set(func(s *fdbpq.Settings) { s.Trail = 0 })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			onTrails(t, 8, func(f *trailed) {
				id := f.done(withTTL(opPush(f.q, 1, "goes"), test.ttl)).Item.ID
				for _, reason := range []string{"a", "b", "c"} {
					f.fail(reason)
				}
				first := f.lease()
				f.one("stays")
				f.fail("of another")
				f.end(first, snooze)
				wantEqual(f.T, "keys", f.attemptKeys(f.q), 4)

				test.leaves(f, id)

				left := 1
				if test.gone {
					left = 0
				}
				wantEqual(f.T, "keys left", f.attemptKeys(f.q), left)
				f.check()
			})
		})
	}
}

// Items that expire together leave no attempt, wherever they lie.
func TestAttemptsExpireInBulk(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		const n = 60
		for i := range n {
			f.done(withTTL(opPush(f.q, 1, fmt.Sprint("item ", i)), time.Hour))
		}
		f.done(opPush(f.q, 2, "stays"))
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: f.q}
		for _, r := range f.apply(slices.Repeat([]fdbpq.Op{lease}, n+1)...) {
			f.end(r.Lease.Token, nakFor("failed"))
		}
		wantEqual(f.T, "keys", f.attemptKeys(f.q), n+1)

		f.clock.advance(time.Hour)
		f.sweep()

		wantEqual(f.T, "items", f.infoOf(f.q, 0).Ready, 1)
		wantEqual(f.T, "keys left", f.attemptKeys(f.q), 1)
	})
}

// An item that a staged pop has taken keeps its attempts until the pop has it: if nobody collects
// it, it comes back with them, or goes with them if it has expired.
func TestAttemptsOfStagedItems(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		job := f.done(withTTL(opPush(f.q, 1, "job"), time.Hour)).Item.ID
		f.fail("a")

		f.leave(f.q, f.clock.now(), fdbpq.Front)
		f.clock.advance(answerLife + time.Second)
		f.sweep()
		f.wantTrail(job, "1.1 nak after 2s by me: a")

		f.clock.advance(time.Hour - answerLife - 5*time.Second)
		f.leave(f.q, f.clock.now(), fdbpq.Front)
		f.clock.advance(time.Minute)
		f.sweep()
		wantEqual(f.T, "keys left", f.attemptKeys(f.q), 0)
	})
}

// A plain pop that goes back has lost the attempts, and later ones have their numbers.
func TestRestoredWithoutAttempts(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		job := f.one("job")
		f.fail("a")

		popped := f.done(op(opPopMin, f.q)).Item
		f.done(opRestore(f.q, popped))
		f.wantTrail(job, "")

		f.fail("b")
		f.wantTrail(job, "1.2 nak after 2s by me: b")
	})
}

// Items of other programs have attempts as well.
func TestAttemptsOfForeignItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.recipePuts(f.priority, false)
		s := newTrailed(f, f.queue("jobs"), 8)
		first := s.done(op(opPeekMin, s.q)).Item.ID
		before := len(s.order(s.q))

		s.fail("a")
		s.wantTrail(first, "1.1 nak after 2s by me: a")
		s.end(s.lease(), term)

		s.wantTrail(first, "1.1 nak after 2s by me: a; 1.2 term after 0s by me: given up")
		wantEqual(t, "items", len(s.order(s.q)), before-1)
		s.fail("b")
		s.done(op(opPopMin, s.q))
		wantEqual(t, "keys left", s.attemptKeys(s.q), 0)
	})
}

// What a program with the bare recipe or an older bridge leaves of attempts keeps no queue in the
// list, and goes with it, with a purge, or with the setting.
func TestAttemptsThatAreLeftBehind(t *testing.T) {
	leave := func(f *fixture) *trailed {
		s := newTrailed(f, f.queue("jobs"), 8)
		s.one("job")
		s.fail("a")
		s.takeAsRecipe("job")
		wantEqual(f.T, "keys", s.attemptKeys(s.q), 1)
		return s
	}

	for name, clear := range map[string]func(s *trailed){
		"purge":   func(s *trailed) { s.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: s.q}) },
		"setting": func(s *trailed) { s.set(func(s *fdbpq.Settings) { s.Trail = 0 }) },
		"retired": func(s *trailed) {
			// As an older bridge does, which knows nothing of these keys.
			write(s.fixture, func(tx kv.Transaction) {
				tx.Clear(s.q.Layout().Key(codec.KindConfig, 0))
				s.q.Layout().ChangeSettingsVersion(tx)
			})
			mark := fdbpq.NewMark()
			s.retire("first", []fdbpq.Target{s.q}, mark, "", fdbpq.Marked)
			s.retire("then", []fdbpq.Target{s.q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				s := leave(f)
				f.corrupt = name == "setting" // which leaves the other keys of that item

				clear(s)

				wantEqual(f.T, "keys left", s.attemptKeys(s.q), 0)
			})
		})
	}
}

// An item that would become too large dies, and is run again, without the header: the value counts
// more.
func TestLargeValuesDieWithout(t *testing.T) {
	f := newTrailedOnMem(t, 8)
	f.set(func(s *fdbpq.Settings) { s.Keep = time.Hour })
	for _, test := range []struct {
		size int
		dead string
	}{
		{fdbpq.MaxMessageSize - 2*trail.MaxBytes, "1.1 term after 0s by me: given up"},
		{fdbpq.MaxMessageSize - trail.MaxBytes + 1, ""},
		{fdbpq.MaxMessageSize, ""},
	} {
		m := largeMessage(test.size)
		push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: f.q, Message: m}

		f.done(push)
		f.end(f.lease(), term)

		dead := f.done(op(opPopMin, f.queue("jobs-dead"))).Item
		wantEqual(t, "attempts", written(trail.Parse(dead.Headers[trail.Header])), test.dead)
		wantEqual(t, "size", bytes.Equal(dead.Value, m.Value), true)

		job := f.done(push).Item.ID
		f.end(f.lease(), ack)
		if r := f.apply(named(fdbpq.OpRedriveItem, f.q, job))[0]; r.Err != nil {
			wantError(t, r.Err, fdbpq.ErrNoValue) // its record had no room for it
			continue
		}
		again := f.done(op(opPopMin, f.q)).Item
		wantEqual(t, "has attempts when it is run again", len(again.Headers[trail.Header]) > 0,
			test.dead != "")
	}
}

// ackAll acknowledges the leases together with successors, each of the job of one of the leases.
func ackAll(q fdbpq.Target, next []fdbpq.Op, tokens ...fdbpq.Token) (ops []fdbpq.Op) {
	for _, token := range tokens {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})
	}
	ops[0].Report = &fdbpq.Report{Next: next}
	return grouped(ops...)
}

// parentOf returns the job that a header names.
func parentOf(t *testing.T, item *fdbpq.Item) trail.Job {
	t.Helper()
	if len(item.Headers[trail.HeaderParent]) != 1 {
		t.Fatalf("the parents of %q are %q", item.Value, item.Headers[trail.HeaderParent])
	}
	parent, ok := trail.ParseJob(item.Headers[trail.HeaderParent][0])
	wantEqual(t, "has a parent", ok, true)
	return parent
}

// A successor names its parent, the job of any lease of the chain, by the id of its first push; a
// kept job names its successors.
func TestParents(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		mail := f.other("mail")
		f.set(func(s *fdbpq.Settings) { s.Next, s.Keep = []string{"mail"}, time.Hour })
		first, second := f.one("first"), f.one("second")
		f.end(f.lease(), term)
		f.done(named(fdbpq.OpRedriveItem, f.other("jobs-dead"), first)) // to another place
		tokens := f.leaseSome(f.q, 2, time.Minute)
		order := []fdbpq.ID{second, first} // which is behind it now
		a, b, c := opPush(mail, 1, "a"), opPush(mail, 1, "b"), opPush(mail, 1, "c")
		b.Parent, c.Parent = 1, 1
		b.Message.Headers = map[string][]string{"A": {"1"}}

		wantErrors(f.T, f.apply(ackAll(f.q, []fdbpq.Op{a, b, c}, tokens...)...))

		wantEqual(f.T, "the headers of the request", len(b.Message.Headers), 1)
		got := map[fdbpq.ID][]trail.Job{}
		for range 3 {
			item := f.done(op(opPopMin, mail)).Item
			parent := order[min(int(item.Value[0]-'a'), 1)]
			wantEqual(f.T, "parent of "+string(item.Value), parentOf(f.T, &item),
				trail.Job{Queue: "jobs", ID: parent.String()})
			got[parent] = append(got[parent], trail.Job{Queue: "mail", ID: item.ID.String()})
			wantEqual(f.T, "other headers", len(item.Headers["A"]), len(item.Headers)-1)
		}
		for _, job := range order {
			next, more := f.done(named(fdbpq.OpGet, f.q, job)).Found.Successors()
			byID := func(a, b trail.Job) int { return strings.Compare(a.ID, b.ID) }
			slices.SortFunc(next, byID)
			slices.SortFunc(got[job], byID)
			wantEqual(f.T, "successors", next, got[job])
			wantEqual(f.T, "more", more, 0)
		}

		f.done(named(fdbpq.OpRedriveItem, f.q, first))
		again := f.done(named(fdbpq.OpGet, f.q, first)).Item
		wantEqual(f.T, "headers when it is run again",
			fmt.Sprint(len(again.Headers), len(again.Headers[trail.HeaderNext])), "1 0")
	})
}

// A record names the first 64 successors, and counts the others.
func TestManySuccessors(t *testing.T) {
	onTrails(t, 1, func(f *trailed) {
		mail := f.other("mail")
		f.set(func(s *fdbpq.Settings) { s.Next, s.Keep = []string{"mail"}, time.Hour })
		job := f.one("job")
		token := f.lease()
		next := slices.Repeat([]fdbpq.Op{opPush(mail, 1, "next")}, 100)

		wantErrors(f.T, f.apply(ackAll(f.q, next, token)...))

		named, more := f.done(named(fdbpq.OpGet, f.q, job)).Found.Successors()
		wantEqual(f.T, "named", len(named), trail.MaxSuccessors)
		wantEqual(f.T, "more", more, 100-trail.MaxSuccessors)
		for _, next := range named {
			id := must(fdbpq.ParseID(next.ID))
			wantEqual(f.T, "state", f.done(fdbpq.Op{
				Kind: fdbpq.OpGet, Queue: mail, ID: id,
			}).State, fdbpq.Ready)
		}
	})
}

// Without the setting, successors and records have no header more. A parent that is none of the
// acknowledgements is refused.
func TestNoParents(t *testing.T) {
	f := newTrailedOnMem(t, 0)
	mail := f.queue("mail")
	f.set(func(s *fdbpq.Settings) { s.Next, s.Keep = []string{"mail"}, time.Hour })
	job := f.one("job")
	token := f.lease()
	next := opPush(mail, 1, "next")

	for _, parent := range []int{-1, 1} {
		bad := next
		bad.Parent = parent
		wantError(t, f.apply(ackAll(f.q, []fdbpq.Op{bad}, token)...)[0].Err, fdbpq.ErrOp)
	}
	f.done(ackAll(f.q, []fdbpq.Op{next}, token)[0])

	wantEqual(t, "headers of the successor", len(f.done(op(opPopMin, mail)).Item.Headers), 0)
	wantEqual(t, "headers of the record", len(f.done(named(fdbpq.OpGet, f.q, job)).Item.Headers), 0)
}

// A change of the setting and the end of an attempt conflict, so no attempt is kept of a queue that
// has no setting any more.
func TestAttemptConflictsWithTheSetting(t *testing.T) {
	for _, end := range []string{"nak", "ran out"} {
		t.Run(end, func(t *testing.T) {
			f := newTrailedOnMem(t, 8)
			f.one("job")
			wait := time.Hour
			if end == "ran out" {
				wait = time.Second
			}
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: f.q, Lease: wait}
			token := f.applyAt(time.Now().Add(-time.Minute), lease)[0].Lease.Token
			ends := fdbpq.Op{Kind: fdbpq.OpNak, Queue: f.q, Token: token}
			if end == "ran out" {
				ends = fdbpq.Op{Kind: fdbpq.OpSweep, Queue: f.q}
			}

			f.wantConflict(true, func() {
				f.set(func(s *fdbpq.Settings) { s.Trail = 0 })
			}, ends)

			f.check()
		})
	}
}

// An end before its begin, by the clock of another bridge, is kept as it was measured.
func TestAttemptsOfClocksApart(t *testing.T) {
	onTrails(t, 8, func(f *trailed) {
		job := f.one("job")
		token := f.lease()
		f.clock.advance(-30 * time.Second)

		f.end(token, nakFor("behind"))

		f.wantTrail(job, "1.1 nak after -30s by me: behind")
		f.end(f.lease(), term)
		f.wantTrail(job, "1.1 nak after -30s by me: behind; 1.2 term after 0s by me: given up")
	})
}

// An attempt is kept once, whatever becomes of the commit that ends it.
func TestAttemptsWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			s := newTrailed(f.fixture, f.queue("jobs"), 8)
			job := s.one("job")
			s.fail("a")
			token := s.lease()
			f.faults.Next(fault, faultkv.None, fault)

			s.end(token, nakFor("b"))

			f.calm()
			s.wantTrail(job, "1.1 nak after 2s by me: a; 1.2 nak after 0s by me: b")
			token = s.lease()
			f.faults.Next(fault, faultkv.None, fault)
			s.end(token, term)
			f.calm()
			s.wantTrail(job, "1.1 nak after 2s by me: a; 1.2 nak after 0s by me: b; "+
				"1.3 term after 0s by me: given up")
		})
	}
}

// In a queue that keeps attempts, jobs that do not fail take the reads, keys and bytes that they
// take in another one.
func TestAttemptsWithoutFailure(t *testing.T) {
	var costs [2][]countkv.Cost
	var stored [2]string
	for n, most := range []int64{0, 8} {
		store := countkv.New(memkv.New(memkv.Options{}))
		f := newFixture(t, store, fdbpq.RawValues)
		s := newTrailed(f, f.queue("jobs"), most)
		s.one("warm")
		s.end(s.lease(), ack)
		store.Take()

		s.one("job")
		token := s.lease()
		s.end(token, extend)
		costs[n] = store.Take()
		for _, pair := range s.stored(s.priority) {
			if !bytes.Equal(pair.Key, s.q.Layout().Key(codec.KindConfig, 0)) {
				escapes := bytes.Count(pair.Key, []byte{0, 0xff}) // of zeros in random bytes
				stored[n] += fmt.Sprintf("%d:%d ", len(pair.Key)-escapes, len(pair.Value))
			}
		}
		store.Take()
		s.end(token, ack)
		costs[n] = append(costs[n], store.Take()...)
	}

	wantEqual(t, "costs", costs[1], costs[0])
	wantEqual(t, "lengths of keys and values", stored[1], stored[0])
}

// One item may always move, however large it is and however often it has failed.
func TestLargestItemWithAttempts(t *testing.T) {
	for name, how := range map[string]fdbpq.Op{"given up": term, "given back": nakFor("")} {
		t.Run(name, func(t *testing.T) {
			f := newTrailedOnMem(t, 8)
			wantError(t, f.apply(opPush(f.q, 1, strings.Repeat("x", 8_999_000)))[0].Err, nil)
			wantError(t, f.end(f.lease(), nakFor("")).Err, nil)
			wantError(t, f.end(f.lease(), how).Err, nil)
			f.check()
		})
	}
}
