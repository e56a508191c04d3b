package dispatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// givesBack is an Options.RequeueLate that puts items back, as a bridge does.
func givesBack(d **Dispatcher) func(*Queue, fdbpq.OpKind, *fdbpq.Result) {
	return func(q *Queue, kind fdbpq.OpKind, result *fdbpq.Result) {
		item := result.Item
		op := fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &item}
		if kind == fdbpq.OpLease {
			op = fdbpq.Op{Kind: fdbpq.OpNak, Queue: q.Target, Token: result.Lease.Token, Uncounted: true}
		}
		requeueUntilDone{*d}.requeue(q, op)
	}
}

// requeueUntilDone is a Replier whose requests are tried again.
type requeueUntilDone struct{ d *Dispatcher }

func (r requeueUntilDone) requeue(q *Queue, op fdbpq.Op) {
	if err := r.d.Requeue(&Request{Queue: q, Replier: r, Received: time.Now()}, []fdbpq.Op{op}); err != nil {
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

// Whatever a request wants, and wherever it is when the store stops answering, it is answered in time.
// What its batch takes afterwards goes back.
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
		for _, l := range limits {
			if at, ended := ends[l.n]; !ended || at.After(l.latest) {
				t.Errorf("request %d ended at %v, want %v at the latest", l.n, at, l.latest)
			}
			w.log.check(t, l.n, l.text)
		}
		w.log.take()
		db.goOn()
		synctest.Wait()
		w.submit(nil, w.pops(fdbpq.Front, 4)...)
		w.want("what was popped has come back", "10: a b c empty")

		// Some wait already.
		for _, wait := range []time.Duration{time.Second, time.Hour} {
			w.submit(until(wait), pops(lease, 2)...)
		}
		synctest.Wait()
		db.stop()
		w.submit(nil, push(w.q, "d"), push(w.q, "e"), push(w.q, "f"))
		time.Sleep(time.Second + late - 1)
		w.want("the time of the first is up")
		time.Sleep(time.Nanosecond)
		w.want("it has waited for the store", "11: failed 1, unknown")
		time.Sleep(timeout + grace - (time.Second + late))
		w.want("the push", "13: failed 3, unknown")
		time.Sleep(time.Minute)
		db.goOn()
		w.want("what the first got goes back", "12: part f", "12: d")
		w.submit(nil, w.pops(fdbpq.Front, 2)...)
		w.want("nothing is lost", "14: e empty")
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: w.q.Target})
	})
}

// check checks how a request ended.
func (e *eventLog) check(t *testing.T, n uint64, text string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.mu.events {
		if event == fmt.Sprintf("%d: failed 1, %s", n, text) || event == fmt.Sprintf("%d: failed 3, %s", n, text) {
			return
		}
	}
	t.Errorf("request %d did not fail with %s: %q", n, text, e.mu.events)
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
		b.push(&Request{Replier: number(nil, n), turnBy: at, Pops: random.IntN(3)}, make([]fdbpq.Op, 1+random.IntN(3)))
	}
	var got []uint64
	for _, late := range b.takeLate(now, true) {
		got = append(got, numberOf(&late.Request))
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
		if b.pop(); b.len() == 0 && (b.operations != 0 || b.nonPushes != 0 || !b.latest.IsZero()) {
			t.Errorf("seed %d: in the end %+v", seed, b)
		}
	}
}
