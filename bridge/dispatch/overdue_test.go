package dispatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// until is a Wait that ends after d.
func until(d time.Duration) *Wait { return &Wait{Until: time.Now().Add(d)} }

// A pop whose time is up while the pops before it are in flight is not told that the queue is
// empty: no batch has looked for it.
func TestWaiterWhoseTimeIsOverBeforeItsTurn(t *testing.T) {
	withLater(t, func(*Options) {}, func(w *waiting, commits chan struct{}) {
		durable := func() {
			synctest.Wait()
			commits <- struct{}{}
		}

		w.submit(nil, push(w.q, "a"), push(w.q, "b"))
		durable()
		w.submit(w.minute(), pop(w.q)) // 2
		synctest.Wait()
		wait := until(time.Millisecond)
		wait.Heartbeat = 100 * time.Millisecond
		w.submit(wait, pop(w.q)) // 3
		time.Sleep(150 * time.Millisecond)

		w.want("the first is in flight", "3: heartbeat 1")

		durable()
		w.want("the first", "2: a")

		durable()
		w.want("the second", "3: b")

		close(commits)
	})
}

// A pop gets an item that another program pushed before it came, though nobody told the bridge: the
// bridge looks when the time of the pop is up, at the latest. One look serves all pops that came
// before it.
func TestLastLook(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.park(pop(w.q))     // 1
		w.pushElsewhere("a") // nobody is woken

		for i := range 30 { // 2 to 31
			w.submit(until(time.Duration(10+i)*time.Second), pop(w.q))
			synctest.Wait()
		}

		w.takeTransactions()
		w.want("nobody has looked")

		time.Sleep(10 * time.Second)
		w.want("the time of the second is over", "1: a", "2: empty")

		looks := w.takeTransactions()
		if looks == 0 {
			t.Error("it has not looked")
		}

		time.Sleep(28*time.Second + time.Second/2)
		synctest.Wait()
		w.log.take()

		w.wantTransactions(0, "for those that came before the look")

		w.pushElsewhere("b")
		w.submit(until(2*time.Second), pop(w.q)) // 32
		time.Sleep(time.Second)

		w.want("the last that may use the first look", "31: empty")

		time.Sleep(time.Second)
		w.want("one that came after it", "32: b")
	})
}

// A lease whose time is up behind others that wait for max_leased gets the same answer as they do,
// and not the answer to a lease that does not wait.
func TestLastLookAtMaxLeased(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a", "b")
		w.park(w.lease())                       // 101
		w.submit(until(time.Second), w.lease()) // 102
		time.Sleep(2 * time.Second)

		w.want("its time is over", "102: waited")

		w.submit(nil, w.lease()) // 103
		w.want("without waiting", "103: leased")
	})
}

// while runs what comes while the lane is busy with another queue, so all of it comes into one
// batch.
func (w *waiting) while(db *heldDB, run func()) {
	held := make(chan struct{})
	db.held = held
	other := getQueue(w.t, w.d.queues, subjects.Priority, "other")
	w.n++
	w.log.submitted(w.n)
	must(w.t, w.d.Submit(&Request{Queue: other, Replier: number(w.log, w.n), Received: time.Now()},
		[]fdbpq.Op{push(other, "x")}))

	synctest.Wait()
	run()
	synctest.Wait()
	db.held = nil
	close(held)
	synctest.Wait()
}

// A pop that has waited for long leaves others in the batch of its last look as much time as ever.
func TestLastLookLeavesTime(t *testing.T) {
	withHeld(t, nil, func(w *waiting, db *heldDB) {
		w.park(pop(w.q))                          // 1
		w.submit(until(40*time.Second), pop(w.q)) // 2
		synctest.Wait()
		w.pushElsewhere("a")
		db.least.Store(int64(time.Hour))
		time.Sleep(time.Minute - time.Second)

		w.want("a last look", "1: a", "2: empty")
		if got := time.Duration(db.least.Load()); got != w.d.options.RequestTimeout {
			t.Errorf("a batch had %v", got)
		}
	})
}

// However long requests may take, a pop that waits ends before its client gives up.
func TestLastLookIsNotTooLate(t *testing.T) {
	configure := func(o *Options) { o.RequestTimeout = time.Hour }
	withHeld(t, configure, func(w *waiting, db *heldDB) {
		w.park(pop(w.q))                       // 1
		w.submit(until(time.Second), pop(w.q)) // 2
		synctest.Wait()

		w.while(db, func() { // 3
			time.Sleep(time.Second + maxLate - 1)
			w.want("just before")
			time.Sleep(time.Nanosecond)
			w.want("it has not looked", "2: failed 1, unavailable")
		})
	})
}

// givesBack is an Options.RequeueLate that puts items back, as a bridge does.
func givesBack(d **Dispatcher) func(*Queue, fdbpq.OpKind, *fdbpq.Result) {
	return func(q *Queue, kind fdbpq.OpKind, result *fdbpq.Result) {
		item := result.Item
		op := fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &item}

		if kind == fdbpq.OpLease {
			op = fdbpq.Op{
				Kind:      fdbpq.OpNak,
				Queue:     q.Target,
				Token:     result.Lease.Token,
				Uncounted: true,
			}
		}

		requeueUntilDone{*d}.requeue(q, op)
	}
}

// requeueUntilDone is a Replier whose requests are tried again.
type requeueUntilDone struct{ d *Dispatcher }

func (r requeueUntilDone) requeue(q *Queue, op fdbpq.Op) {
	err := r.d.Requeue(&Request{Queue: q, Replier: r, Received: time.Now()}, []fdbpq.Op{op})
	if err != nil {
		panic(err)
	}
}

func (r requeueUntilDone) Answer(_ *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	if err := results[0].Err; err != nil && ops[0].Kind == fdbpq.OpRestore {
		panic(err)
	}
}

func (r requeueUntilDone) Fail(again *Request, ops []fdbpq.Op, err error) {
	if errors.Is(err, ErrUnknownOutcome) { // the dispatcher sees to the item
		return
	}

	q, op := again.Queue, ops[0]
	r.d.Hold()

	time.AfterFunc(10*time.Millisecond, func() {
		defer r.d.Release()
		r.requeue(q, op)
	})
}

// withDeaf is inBubble with a store that the test stops, and with answers whose times are checked.
func withDeaf(t *testing.T, test func(w *waiting, db *deafDB)) {
	t.Helper()
	var db *deafDB
	var d *Dispatcher

	inBubble(t, func(o *Options) {
		db = newDeafDB(memkv.New(memkv.Options{}))
		o.DB, o.RequeueLate = db, givesBack(&d)
	}, func(w *waiting) {
		d = w.d
		test(w, db)
	})
}

// Whatever a request wants, and wherever it is when the store stops answering, it is answered in
// time. What its batch takes afterwards goes back.
func TestAnswersOfAStoreThatDoesNotAnswer(t *testing.T) {
	withDeaf(t, func(w *waiting, db *deafDB) {
		timeout, late := w.d.options.RequestTimeout, w.d.lanes[0].lateTime()
		grace := w.d.lanes[0].graceTime()
		w.push("a")
		w.push("b")
		w.push("c")

		w.want("at first")

		ends := map[uint64]time.Time{}
		w.log.mu.notify = func(n uint64, ended bool) {
			if ended {
				ends[n] = time.Now()
			}
		}

		type limit struct {
			n      uint64
			latest time.Time
			text   string
		}

		var limits []limit
		submit := func(most time.Duration, text string, wait *Wait, ops ...fdbpq.Op) {
			t.Helper()
			latest := time.Now().Add(most)
			limits = append(limits, limit{w.submit(wait, ops...), latest, text})
		}

		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour}
		db.stop()
		submit(timeout+grace, "unknown", until(time.Hour), pop(w.q)) // in a batch
		synctest.Wait()
		submit(timeout, "unavailable", nil, push(w.q, "x")) // in the backlog
		submit(timeout, "unavailable", nil, pops(lease, 3)...)
		submit(time.Second+late, "unavailable", until(time.Second), pops(lease, 3)...)
		submit(timeout, "unavailable", until(time.Hour), pop(w.q))
		time.Sleep(timeout / 2)
		submit(timeout, "unavailable", nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: w.q.Target})
		time.Sleep(2 * timeout)
		synctest.Wait()
		events := fmt.Sprint(w.log.take())

		for _, l := range limits {
			if at, ended := ends[l.n]; !ended || at.After(l.latest) {
				t.Errorf("request %d ended at %v, want %v at the latest", l.n, at, l.latest)
			}

			said := regexp.MustCompile(fmt.Sprintf(`\b%d: failed [13], %s\b`, l.n, l.text))
			if !said.MatchString(events) {
				t.Errorf("request %d did not fail with %s: %s", l.n, l.text, events)
			}
		}

		db.goOn()
		synctest.Wait()
		w.submit(nil, w.pops(fdbpq.Front, 4)...)

		w.want("what was popped has come back", "10: a b c empty")
	})
}

// Requests that are tried again behind younger ones end in time too.
func TestOldRequestsBehindOthers(t *testing.T) {
	var b backlog
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	now := time.Now()
	var want []uint64

	for n := range uint64(200) {
		at := now.Add(time.Duration(random.IntN(1000)-500) * time.Millisecond)
		if !at.After(now) {
			want = append(want, n)
		}

		b.push(&Request{Replier: number(nil, n), turnBy: at, Pops: random.IntN(3)},
			make([]fdbpq.Op, 1+random.IntN(3)))
	}

	var got []uint64
	for _, late := range b.takeLate(now) {
		got = append(got, numberOf(late.Request))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || b.len() != 200-len(want) {
		t.Errorf("seed %d: got %d, want %d; %d are left", seed, got, want, b.len())
	}

	operations := 0
	for b.len() > 0 {
		r, ops := b.first()
		operations += r.operations(ops)
		if !r.turnBy.After(now) {
			t.Errorf("seed %d: request %d should have had its turn", seed, numberOf(r))
		}

		if b.pop(); b.len() == 0 && (b.operations != 0 || b.nonPushes != 0) {
			t.Errorf("seed %d: in the end %+v", seed, b)
		}
	}
}

// A store that refuses pushes, and what else makes it larger, takes the last look of a pop, though
// both came into one batch.
func TestLastLookBesideAPushThatIsRefused(t *testing.T) {
	large := strings.Repeat("x", tooLarge+1)
	for _, c := range []struct {
		items   int
		refused func(q *Queue) fdbpq.Op
	}{
		{2, func(q *Queue) fdbpq.Op { return push(q, large) }},
		{1, func(q *Queue) fdbpq.Op { return push(q, large) }},
		{1, func(q *Queue) fdbpq.Op {
			return fdbpq.Op{
				Kind:   fdbpq.OpSetConsumer,
				Queue:  q.Target,
				Record: "name",
				Change: func([]byte, time.Time) ([]byte, error) { return []byte(large), nil },
			}
		}},
	} {
		items := c.items
		withHeld(t, nil, func(w *waiting, db *heldDB) {
			w.park(pop(w.q))                          // 1
			w.submit(until(20*time.Second), pop(w.q)) // 2
			synctest.Wait()
			w.pushElsewhere([]string{"a", "b"}[:items]...)
			time.Sleep(19 * time.Second)
			db.full.Store(true)

			w.while(db, func() { // 3
				time.Sleep(time.Second)
				w.submit(nil, c.refused(w.q)) // 4
			})

			want := []string{"4: failed 1, unavailable", "1: a", "2: b"}
			if items == 1 {
				want[2] = "2: empty"
			}
			w.want("the disk is full", want...)
		})
	}
}
