package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// sweepTest has some bridges on one store that counts transactions, in a bubble with a clock of its
// own.
type sweepTest struct {
	*testing.T
	db       kv.Database
	store    *countkv.DB
	keyspace *fdbpq.Keyspace
	batcher  *fdbpq.Batcher // of a program that is no bridge
	owner    atomic.Int64   // the bridge that owns all queues
}

// sweepBridge is a bridge with a sweeper.
type sweepBridge struct {
	*sweepTest
	d    *Dispatcher
	stop func()
}

// Whether the store is one that several processes share, such as FoundationDB.
const ownStore, sharedStore = false, true

// inSweepTest runs a test in a bubble, on an empty store.
func inSweepTest(t *testing.T, shared bool, test func(w *sweepTest)) {
	synctest.Test(t, func(t *testing.T) {
		store := countkv.New(
			&hookedDB{Database: memkv.New(memkv.Options{}), traits: &kv.Traits{Shared: shared}})
		keyspace := testOptions(t, store).Keyspace

		test(&sweepTest{
			T:        t,
			db:       store,
			store:    store,
			keyspace: keyspace,
			batcher:  fdbpq.NewBatcher(store, keyspace),
		})
	})
}

// start starts the bridge with number n, which owns the queues while w.owner is n. configure may
// change the options.
func (w *sweepTest) start(n int64, configure func(*Options)) *sweepBridge {
	o := testOptions(w, w.db)
	o.Owns = func(subjects.Kind, string) bool { return w.owner.Load() == n }

	if configure != nil {
		configure(&o)
	}

	s := &sweepBridge{sweepTest: w, d: New(o)}
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { s.d.Sweeper().Run(ctx) })
	stopRequests := run(w.T, s.d)

	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		stopRequests()
	})

	w.Cleanup(s.stop)
	synctest.Wait()
	return s
}

// do runs operations through the bridge.
func (s *sweepBridge) do(queue string, ops ...fdbpq.Op) {
	s.Helper()
	_, err := s.d.Do(s.Context(), getQueue(s.T, s.d.queues, subjects.Priority, queue), ops)
	if err != nil {
		s.Error(err)
	}
}

// submit submits an operation through the bridge.
func (s *sweepBridge) submit(queue string, wait *Wait, op fdbpq.Op) *call {
	s.Helper()
	q, c := getQueue(s.T, s.d.queues, subjects.Priority, queue), newCall()
	op.Queue = q.Target
	must(s, s.d.Submit(&Request{Queue: q, Replier: c, Received: time.Now(), Wait: wait},
		[]fdbpq.Op{op}))

	return c
}

// applyAsOther runs operations as a program that is no bridge.
func (w *sweepTest) applyAsOther(queue string, ops ...fdbpq.Op) {
	w.Helper()
	for i := range ops {
		ops[i].Queue = w.target(queue)
	}

	results, err := w.batcher.Apply(w.Context(), ops)
	if err != nil || results[0].Err != nil {
		w.Fatal(err, results)
	}
}

func (w *sweepTest) target(queue string) fdbpq.Target {
	q, err := w.keyspace.PriorityQueue(queue)
	must(w, err)
	return q
}

// sleep lets time pass, and returns how many transactions began meanwhile.
func (w *sweepTest) sleep(d time.Duration) int {
	w.store.Take()
	time.Sleep(d)
	synctest.Wait()
	return len(w.store.Take())
}

// stored returns how many items of a queue the store has, whatever is due.
func (w *sweepTest) stored(queue string) int64 {
	w.Helper()
	info := w.info(queue)
	return info.Ready + info.Leased + info.Delayed
}

// info reads the stored counts of a queue, without bringing anything back.
func (w *sweepTest) info(queue string) *fdbpq.Info {
	w.Helper()
	results, err := kv.ReadTransact(w.Context(), w.db, func(r kv.Reader) ([]fdbpq.Result, error) {
		return fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpInfo, Queue: w.target(queue)}})
	})

	if err != nil || results[0].Err != nil {
		w.Fatal(err, results)
	}

	return results[0].Info
}

func (w *sweepTest) want(what string, got, want any) {
	w.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// pushFor and the functions below return operations without their queue.
func pushFor(ttl time.Duration) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpPush, TTL: ttl} }

func pushOnce(id string) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{MsgID: id}}
}

func leaseFor(d time.Duration) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpLease, Lease: d} }

func oneDelivery() fdbpq.Op {
	return fdbpq.Op{
		Kind:      fdbpq.OpConfigure,
		Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 1 },
	}
}

// deadline is how soon the protocol promises dead letters.
const deadline = 30 * time.Second

// setTomorrow sets a schedule that fires once, after a day.
func setTomorrow(id int) fdbpq.Op {
	s := &schedule.Schedule{
		Every: schedule.Duration(24 * time.Hour),
		Until: time.Now().Add(30 * time.Hour),
	}
	return fdbpq.Op{Kind: fdbpq.OpSetSchedule, Record: fmt.Sprint(id),
		Change: func(_ []byte, now time.Time) ([]byte, error) {
			return schedule.Set(nil, s, now).Encode(), nil
		}}
}

// While nothing is due, there is not one transaction, however much falls due later. Then it expires
// or fires, and afterwards there are none again.
func TestSweeperIsIdle(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		w.applyAsOther("before", pushFor(24*time.Hour))
		a := w.start(0, nil)
		const queues, schedules = 50, 10

		// Each of the first queues has an item that expires, a delayed one, and one that stays.
		for i := range queues {
			a.do(fmt.Sprint("jobs-", i), pushFor(24*time.Hour),
				fdbpq.Op{Kind: fdbpq.OpPush, Delay: 25 * time.Hour}, fdbpq.Op{Kind: fdbpq.OpPush})
			for id := range schedules {
				a.do(fmt.Sprint("planned-", i), setTomorrow(id))
			}
		}

		w.sleep(time.Second) // the pass at the start
		w.want("transactions", w.sleep(23*time.Hour), 0)

		w.sleep(3 * time.Hour)

		// The delayed items and those without a TTL are left.
		w.want("stored", fmt.Sprint(w.stored("before"), w.stored("jobs-0"), w.stored("jobs-49")),
			"0 2 2")
		w.want("expired", a.d.SideEffects().Expired, queues+1)
		w.want("fired", a.d.SideEffects().Fired, queues*schedules)
		w.want("transactions in the end", w.sleep(1000*time.Hour), 0)
	})
}

// While joiners wait, with requests that wait for them, there is not one transaction, however many
// they are. In a shared store there are as many as for one delayed item.
func TestWaitingJoinersAreIdle(t *testing.T) {
	const queues, each = 100, 10
	joiners := harness.Times(queues*each, 100_000)
	idle := func(shared bool, n int, push ...fdbpq.Op) (transactions int) {
		inSweepTest(t, shared, func(w *sweepTest) {
			a := w.start(0, nil)
			for i := range n / each {
				a.do(fmt.Sprint("jobs-", i%queues), slices.Repeat(push, each)...)
			}
			a.do("parts", push...)
			for i := range queues {
				pop := fdbpq.Op{Kind: fdbpq.OpPop, End: fdbpq.Back}
				a.submit(fmt.Sprint("jobs-", i), until(time.Hour), pop)
			}

			w.sleep(2 * passEvery) // the passes after requests
			transactions = w.sleep(time.Minute)
			w.want("stored", w.stored("jobs-0"), n/queues*len(push))
		})
		return transactions
	}
	joiner := fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Join: 24 * time.Hour}}
	member := fdbpq.Op{Kind: fdbpq.OpPush, MemberOf: 1, Follows: true, Delay: 23 * time.Hour}

	got := idle(ownStore, joiners, joiner, member)
	if got > 0 {
		t.Errorf("%d transactions while %d joiners wait", got, joiners)
	}
	got = idle(sharedStore, joiners, joiner, member)
	want := idle(sharedStore, 0, fdbpq.Op{Kind: fdbpq.OpPush, Delay: 24 * time.Hour})
	if got > want {
		t.Errorf("%d transactions while %d joiners wait; want %d as for a delayed item",
			got, joiners, want)
	}
	t.Logf("%d joiners in a shared store: %d transactions in a minute", joiners, got)
}

// Dead letters appear in time without a request to the queue, whichever process leased the items,
// and a pop that waits for one gets it.
func TestSweptDeadLetters(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		w.applyAsOther("before", oneDelivery())
		w.applyAsOther("before", fdbpq.Op{Kind: fdbpq.OpPush})
		w.applyAsOther("before", leaseFor(time.Minute))
		a := w.start(0, nil)

		a.do("now", oneDelivery(), fdbpq.Op{
			Kind:    fdbpq.OpPush,
			Message: fdbpq.Message{Value: []byte("x")},
		}, leaseFor(time.Minute))

		waits := a.submit("now-dead", until(time.Hour), fdbpq.Op{Kind: fdbpq.OpPop})
		w.sleep(time.Minute + deadline)
		w.want("stored", fmt.Sprint(w.stored("before"), w.stored("before-dead"), w.stored("now")),
			"0 1 0")

		synctest.Wait()
		w.want("a pop that waits for it", outcome(waits.results), "x")
	})
}

// The next owner of a queue finds the due items of a bridge that is gone.
func TestNextOwnerSweeps(t *testing.T) {
	for _, shared := range []bool{false, true} {
		inSweepTest(t, shared, func(w *sweepTest) {
			a, b := w.start(0, nil), w.start(1, nil)
			a.do("jobs", oneDelivery(), fdbpq.Op{Kind: fdbpq.OpPush}, leaseFor(time.Minute))
			a.do("short", pushFor(time.Second))
			a.stop()
			w.owner.Store(1)
			b.d.OwnersChanged()

			// First the item with a TTL is due, then the lease.
			w.sleep(time.Second + deadline)
			w.want("expired", b.d.SideEffects().Expired, 1)

			w.sleep(time.Minute - time.Second)
			w.want("stored", fmt.Sprint(w.stored("short"), w.stored("jobs"), w.stored("jobs-dead")),
				"0 0 1")
		})
	}
}

// A bridge sweeps due items that it alone knows of, even if another one owns the queue.
func TestOtherBridgesSweep(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		a, b := w.start(0, nil), w.start(1, nil)
		w.owner.Store(2) // neither of them

		for _, s := range []*sweepBridge{a, b} {
			s.do("jobs", pushFor(time.Second), oneDelivery())
		}

		// Two items expire, and the third becomes a dead letter.
		b.do("jobs", fdbpq.Op{Kind: fdbpq.OpPush, Priority: -1}, leaseFor(time.Second))
		w.sleep(time.Second + deadline)
		w.want("stored", fmt.Sprint(w.stored("jobs"), w.stored("jobs-dead")), "0 1")
		w.want("expired", a.d.SideEffects().Expired+b.d.SideEffects().Expired, 2)
		w.want("transactions in the end", w.sleep(1000*time.Hour), 0)
	})
}

// Due items of programs that are no bridges are found after a request to any queue, and while any
// queue has something ahead. Otherwise there are no transactions.
func TestSweeperFindsForeignItems(t *testing.T) {
	inSweepTest(t, sharedStore, func(w *sweepTest) {
		a := w.start(0, nil)
		w.sleep(time.Second)
		w.want("transactions without queues", w.sleep(24*time.Hour), 0)

		a.do("other", fdbpq.Op{Kind: fdbpq.OpPush})
		w.sleep(time.Hour)
		w.want("transactions without anything ahead", w.sleep(24*time.Hour), 0)

		w.applyAsOther("jobs", pushFor(time.Second))
		w.want("transactions while nobody asks", w.sleep(24*time.Hour), 0)

		a.do("other", fdbpq.Op{Kind: fdbpq.OpPush})
		w.sleep(deadline)
		w.want("stored", w.stored("jobs"), 0)

		// Once it has found an item that is due later, it also finds what comes after that.
		w.applyAsOther("jobs", pushFor(48*time.Hour))
		a.do("other", fdbpq.Op{Kind: fdbpq.OpPush})
		w.sleep(passEvery)
		w.applyAsOther("late", pushFor(time.Second))
		w.sleep(passEvery + deadline)

		w.want("stored", w.stored("late"), 0)
		const rounds, mostInRound = 10, 4
		if n := w.sleep(rounds * passEvery); n == 0 || n > rounds*mostInRound {
			t.Errorf("%d transactions in %d rounds", n, rounds)
		}

		w.sleep(48 * time.Hour)
		w.want("stored", w.stored("jobs"), 0)
		w.want("transactions in the end", w.sleep(1000*time.Hour), 0)
	})
}

// Message ids go after their window although no push comes. Queues that are empty then leave the
// list, and so do queues whose items have expired.
func TestSweptQueuesLeaveTheList(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		a := w.start(0, nil)
		ctx, cancel := context.WithCancel(w.Context())
		var maintains sync.WaitGroup
		maintains.Go(func() { a.d.Maintain(ctx, func() {}) })

		// Both queues have nothing but what ends after five hours: ids, or an item.
		long := func(s *fdbpq.Settings) { s.DuplicateWindow = 5 * time.Hour }
		a.do("ids", fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: long})

		for i := range 5 {
			a.do("ids", pushOnce(fmt.Sprint(i)))
			a.do("ids", fdbpq.Op{Kind: fdbpq.OpPop})
		}

		a.do("ids", fdbpq.Op{
			Kind:      fdbpq.OpConfigure,
			Configure: func(s *fdbpq.Settings) { *s = fdbpq.Settings{} },
		})

		a.do("expires", pushFor(5*time.Hour))
		listed := func() int {
			names, err := kv.ReadTransact(w.Context(), w.db, func(r kv.Reader) ([]string, error) {
				return w.keyspace.PriorityQueues(r, "", 10).Get()
			})
			must(w, err)
			return len(names)
		}

		w.sleep(4*time.Hour + 50*time.Minute)
		w.want("listed", listed(), 2)

		w.sleep(10*time.Minute + msgIDLag + 2*sweepEvery)
		ahead, err := kv.ReadTransact(w.Context(), w.db,
			func(r kv.Reader) ([]fdbpq.Upcoming, error) {
				queues := []fdbpq.Target{w.target("ids"), w.target("expires")}
				return fdbpq.ReadUpcoming(r, queues, time.Now())
			})
		w.want("left", fmt.Sprint(ahead, err), fmt.Sprint(make([]fdbpq.Upcoming, 2), nil))

		w.sleep(time.Hour)
		w.want("listed", listed(), 0)
		w.want("transactions in the end", w.sleep(100*time.Hour), 0)

		cancel()
		maintains.Wait()
	})
}

// A wrong clock only changes when the sweeper sweeps: no item stays, and with a clock that is set
// back no transaction begins early. A bridge with a right clock sweeps its items in time.
func TestSweeperAndClocks(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		clock := &steppedClock{}
		a := w.start(0, func(o *Options) { o.Now = clock.now })
		w.sleep(time.Second) // the pass at the start
		a.do("jobs", pushFor(time.Minute))

		// Set back.
		clock.step(-time.Hour)
		w.want("transactions while its clock is behind", w.sleep(time.Hour), 0)

		w.sleep(time.Minute + deadline)
		w.want("stored", w.stored("jobs"), 0)

		// Set forward.
		a.do("jobs", pushFor(time.Hour))
		clock.step(time.Hour + sweepLag)
		w.sleep(sweepEvery) // then it looks at its agenda

		w.want("stored", w.stored("jobs"), 0)

		// A bridge with a right clock does what the owner takes for early.
		clock.step(-time.Hour - sweepLag)
		b := w.start(1, nil)
		b.do("jobs", pushFor(time.Minute))
		w.sleep(time.Minute + deadline)

		w.want("stored", w.stored("jobs"), 0)
		w.want("expired", fmt.Sprint(a.d.SideEffects().Expired, b.d.SideEffects().Expired), "2 1")
	})
}

// Dead letters and message ids that fall due because the clock is set forward are swept as soon as
// others, even while a queue that cannot be read waits for its next try.
func TestSweeperAndAClockSetForward(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		clock := &steppedClock{}
		damaged := tuple.Tuple{"pq", "damaged", "t"}.Pack()
		a := w.start(0, func(o *Options) {
			o.Now, o.DB = clock.now, &hookedDB{Database: w.db, damage: damaged}
		})
		w.sleep(time.Second)

		a.d.Sweeper().noteUpcoming([]fdbpq.QueueUpcoming{{
			Queue:    fdbpq.QueueName{Name: "damaged"},
			Upcoming: fdbpq.Upcoming{Due: clock.now()},
		}})

		w.sleep(sweepLag + 2*sweepEvery) // it finds out that this cannot be read
		a.do("jobs", oneDelivery(), fdbpq.Op{Kind: fdbpq.OpPush}, leaseFor(time.Hour))
		a.do("ids", pushOnce("id"), fdbpq.Op{Kind: fdbpq.OpPop})

		clock.step(2 * time.Hour)
		w.sleep(sweepLag + sweepEvery)

		w.want("stored", fmt.Sprint(w.stored("jobs"), w.stored("jobs-dead")), "0 1")

		ahead, err := kv.ReadTransact(w.Context(), w.db,
			func(r kv.Reader) ([]fdbpq.Upcoming, error) {
				return fdbpq.ReadUpcoming(r, []fdbpq.Target{w.target("ids")}, time.Now())
			})
		must(w, err)
		w.want("ids ahead", ahead[0], fdbpq.Upcoming{})
	})
}

// A store that fails is tried again, not too often while it is away, until every due item has
// expired once.
func TestSweeperAndFaults(t *testing.T) {
	seed := rand.Uint64()
	inSweepTest(t, ownStore, func(w *sweepTest) {
		faulty := faultkv.New(w.store, faultkv.Options{Seed: seed, Rates: map[faultkv.Fault]float64{
			faultkv.Outage:            0.003,
			faultkv.Conflict:          0.1,
			faultkv.UnknownLost:       0.1,
			faultkv.UnknownMade:       0.1,
			faultkv.UnknownDuringNext: 0.1,
		}})

		const queues, items = 100, 5
		for i := range queues {
			w.applyAsOther(fmt.Sprint("jobs-", i),
				slices.Repeat([]fdbpq.Op{pushFor(time.Minute)}, items)...)
		}

		faulty.SetOutage(true)
		a := w.start(0, func(o *Options) { o.DB = faulty })
		w.sleep(time.Hour)

		const most = 800 // one in 4.5 seconds
		if n := w.sleep(time.Hour); n > most {
			t.Errorf("%d transactions in an hour without the store", n)
		}

		faulty.SetOutage(false)
		w.sleep(time.Hour)

		for i := range queues {
			w.want("stored", w.stored(fmt.Sprint("jobs-", i)), 0)
		}
		w.want("expired", a.d.SideEffects().Expired, queues*items)
		w.want("transactions in the end", w.sleep(1000*time.Hour), 0)

		if t.Failed() {
			t.Logf("the seed is %d", seed)
		}
	})
}

// The agenda keeps the earliest time of each queue, returns them in order, and takes no more queues
// than its limit.
func TestAgenda(t *testing.T) {
	const queues = 20
	a, start := newAgenda(queues), time.Now()
	name := func(i int) fdbpq.QueueName { return fdbpq.QueueName{Name: fmt.Sprint(i)} }

	// Each queue gets three of the 60 seconds, 20 apart. The earliest is one of the first 20.
	for i := range 3 * queues {
		a.add(task{queue: name(i % queues), at: start.Add(time.Duration(i*7%60) * time.Second)})
	}
	if a.add(task{queue: name(-1), at: start}) || !a.add(task{queue: name(0), at: start}) {
		t.Error("the limit does not hold")
	}

	last, n := start, 0
	for _, task := range a.takeDue(start.Add(time.Hour), 100) {
		if n++; task.at.Before(last) || task.at.After(start.Add(queues*time.Second)) {
			t.Errorf("%v at %v after %v", task.queue, task.at, last)
		}
		last = task.at
	}
	if n != queues || len(a.byQueue) > 0 {
		t.Errorf("%d tasks, %d are left", n, len(a.byQueue))
	}
}

// The sweeper sweeps every other queue in time although one cannot be read, and a name in the list
// is none that a queue can have. It does not try the damaged queue too often.
func TestSweeperAndDamagedQueues(t *testing.T) {
	for _, known := range []bool{false, true} { // by batches of this process, or by the list alone
		inSweepTest(t, ownStore, func(w *sweepTest) {
			begin := tuple.Tuple{"pq-queues", "a b"}.Pack()
			must(t, kv.Update(w.Context(), w.db, func(tx kv.Transaction) error {
				tx.Set(begin, tuple.Tuple{int64(1)}.Pack())
				return nil
			}))

			w.applyAsOther("jobs-2", fdbpq.Op{Kind: fdbpq.OpPush})
			o := func(o *Options) {
				o.DB = &hookedDB{Database: w.db, damage: tuple.Tuple{"pq", "jobs-2", "t"}.Pack()}
			}
			var a *sweepBridge

			if known {
				a = w.start(0, o)
			}

			for i := range 5 {
				if name := fmt.Sprint("jobs-", i); known && i != 2 {
					a.do(name, pushFor(time.Minute))
				} else {
					w.applyAsOther(name, pushFor(time.Minute))
				}
			}

			if known {
				a.d.Sweeper().noteUpcoming([]fdbpq.QueueUpcoming{{
					Queue:    fdbpq.QueueName{Name: "jobs-2"},
					Upcoming: fdbpq.Upcoming{Due: time.Now().Add(time.Minute)},
				}})
			} else {
				a = w.start(0, o)
			}

			w.sleep(time.Minute + deadline)
			for i, want := range []int{0, 0, 2, 0, 0} { // jobs-2 is the damaged queue
				w.want(fmt.Sprint("stored in jobs-", i), w.stored(fmt.Sprint("jobs-", i)), want)
			}
			w.want("expired", a.d.SideEffects().Expired, 4)

			const most = 50
			if n := w.sleep(time.Hour); n > most {
				t.Errorf("%d transactions in an hour for a damaged queue", n)
			}
		})
	}
}
