package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// ledger is a Replier that keeps every Request that it was ever told of, and knows for each request
// by when it has to end.
type ledger struct {
	t *testing.T
	d *Dispatcher

	mu     sync.Mutex
	latest map[uint64]time.Time // by when each is to end
	ends   map[uint64]int
	left   sync.WaitGroup
	seen   []WaitHandle
	tokens map[*Queue][]fdbpq.Token
	pushed map[string]error // by value; nil is durable
	popped map[string]int
}

// newLedger returns the ledger of a Dispatcher with two lanes that runs until stop is called.
func newLedger(t *testing.T, o Options) (g *ledger, stop func()) {
	o.Lanes, o.MaxBatch, o.MaxPending, o.MaxWaiters = 2, 20, 1<<20, 1<<20
	var d *Dispatcher
	o.RequeueLate = givesBack(&d)
	d = New(o)
	watchMoves(t, d)

	return &ledger{
		t:      t,
		d:      d,
		latest: map[uint64]time.Time{},
		ends:   map[uint64]int{},
		tokens: map[*Queue][]fdbpq.Token{},
		pushed: map[string]error{},
		popped: map[string]int{},
	}, run(t, d)
}

func (g *ledger) note(r *Request, ops []fdbpq.Op, results []fdbpq.Result, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ends[numberOf(r)] > 0 {
		g.t.Errorf("request %d was called after its end", numberOf(r))
	}

	if r.Wait != nil {
		g.seen = append(g.seen, r.WaitHandle())
	}

	for i := range results {
		value := string(results[i].Item.Value)
		switch {
		case ops[i].Kind == fdbpq.OpPush:
			g.pushed[string(ops[i].Message.Value)] = results[i].Err
		case results[i].Err != nil:
		case ops[i].Kind == fdbpq.OpPop:
			g.popped[value]++
		case ops[i].Kind == fdbpq.OpLease:
			g.tokens[r.Queue] = append(g.tokens[r.Queue], results[i].Lease.Token)
			if g.popped[value] > 0 {
				g.t.Errorf("%s was leased after it was popped", value)
			}
		}
	}

	if ended {
		g.ends[numberOf(r)]++
		g.left.Done()
		if late := time.Since(g.latest[numberOf(r)]); late > 0 {
			g.t.Errorf("request %d ended %v too late", numberOf(r), late)
		}
	}
}

func (g *ledger) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	g.note(r, ops, results, true)
}

func (g *ledger) Deliver(r *Request, ops []fdbpq.Op, results []fdbpq.Result) bool {
	more := numberOf(r)%10 != 0
	g.note(r, ops, results, !more)
	return more
}

func (g *ledger) Heartbeat(r *Request, _ int) { g.note(r, nil, nil, false) }

func (g *ledger) Fail(r *Request, ops []fdbpq.Op, err error) {
	g.mu.Lock()
	for i := range ops {
		if ops[i].Kind == fdbpq.OpPush {
			g.pushed[string(ops[i].Message.Value)] = err
		}
	}

	g.mu.Unlock()
	g.note(r, nil, nil, true)
}

// random returns a WaitHandle that was seen, or the zero one.
func (g *ledger) random(random *rand.Rand) (w WaitHandle) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if len(g.seen) > 0 {
		w = g.seen[random.IntN(len(g.seen))]
	}

	return w
}

// The requests of a ledger: their queues, the longest times, and the most items that one wants.
const (
	ledgerQueues, ledgerPops                = 4, 30
	longestWait, longestLease, longestDelay = 30 * time.Second, 20 * time.Second, 5 * time.Second
)

// submit submits a random request.
func (g *ledger) submit(random *rand.Rand, n uint64) {
	upTo := func(most time.Duration) time.Duration {
		return time.Duration(random.Int64N(int64(most) + 1))
	}
	q, err := g.d.Queue(subjects.Priority, fmt.Sprint("jobs-", random.IntN(ledgerQueues)))
	if err != nil {
		g.t.Error(err)
		return
	}

	if random.IntN(50) == 0 {
		g.d.Wake(q)
	}

	r := &Request{Queue: q, Replier: number(g, n), Received: time.Now(), Size: 10}
	op := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q.Target, End: fdbpq.End(random.IntN(2))}

	if random.IntN(3) == 0 {
		op.Kind, op.Lease = fdbpq.OpLease, fdbpq.MinLease+upTo(longestLease)
	}

	ops := []fdbpq.Op{op}
	latest := r.Received.Add(g.d.options.RequestTimeout + g.d.lanes[0].graceTime())

	switch k := random.IntN(10); {
	case k < 4:
		ops = nil
		for i := range 1 + random.IntN(3) {
			ops = append(ops, push(q, fmt.Sprint(n, ".", i)))
			ops[i].Delay = max(0, upTo(2*longestDelay)-longestDelay)
		}
	case k < 8:
		r.Pops = 1 + random.IntN(ledgerPops)
		r.Wait = &Wait{Until: r.Received.Add(upTo(longestWait)), Heartbeat: longestWait / 30}
		r.Wait.OnlyIfEmpty = random.IntN(4) == 0
		latest = r.Wait.Until.Add(g.d.lanes[0].lateTime())
	case k < 9:
		r.Pops = 1 + random.IntN(ledgerPops)
	default:
		g.mu.Lock()
		if tokens := g.tokens[q]; len(tokens) > 0 { // an acknowledgement would lose the item
			ops[0] = fdbpq.Op{
				Kind:  fdbpq.OpNak,
				Queue: q.Target,
				Token: tokens[random.IntN(len(tokens))],
			}
		}

		g.mu.Unlock()
	}

	g.mu.Lock()
	g.latest[n] = latest
	g.mu.Unlock()
	g.left.Add(1)

	if err := g.d.Submit(r, ops); err != nil {
		g.t.Error(err)
		g.left.Done()
	}
}

// check checks, once the Dispatcher has ended, that each request has ended once and each item comes
// out once. db is the store, without faults, and by now all leases are over.
func (g *ledger) check(requests uint64, db kv.Database, now func() time.Time) {
	for n := range requests {
		if g.ends[n] != 1 {
			g.t.Errorf("request %d ended %d times", n, g.ends[n])
		}
	}
	if n, _ := g.d.Pending(); n != 0 || g.d.Waiters() != 0 {
		g.t.Errorf("%d requests and %d waiters are left", n, g.d.Waiters())
	}

	for _, w := range g.seen {
		g.d.Cancel(w) // nothing happens
	}

	batcher := fdbpq.NewBatcher(db, g.d.options.Keyspace)
	batcher.SetNow(now)

	for i := range ledgerQueues {
		q := getQueue(g.t, g.d.queues, subjects.Priority, fmt.Sprint("jobs-", i))
		for {
			results, err := batcher.Apply(g.t.Context(), []fdbpq.Op{pop(q)})
			must(g.t, err)

			if results[0].Err != nil {
				break
			}

			g.popped[string(results[0].Item.Value)]++
		}
	}

	for value, err := range g.pushed {
		unknown := errors.Is(err, ErrUnknownOutcome)
		got := g.popped[value]
		if got > 1 || got == 0 && err == nil || got > 0 && err != nil && !unknown {
			g.t.Errorf("%s came out %d times, its push ended with %v", value, got, err)
		}
	}
}

// Whatever happens to the store and the clock, and however late requests are cancelled, each
// request ends once and in time, and each item comes out once.
func TestAccountsWithCancels(t *testing.T) {
	for range harness.Times(2, harness.RaceTimes(8, 2)) {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) { testAccountsWithCancels(t, seed) })
		if t.Failed() {
			t.Fatalf("the seed is %d", seed)
		}
	}
}

func testAccountsWithCancels(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	faults := faultkv.New(memkv.New(memkv.Options{}),
		faultkv.Options{Seed: seed, Rates: map[faultkv.Fault]float64{
			faultkv.Conflict:          0.02,
			faultkv.TooOld:            0.01,
			faultkv.Outage:            0.01,
			faultkv.UnknownLost:       0.02,
			faultkv.UnknownMade:       0.02,
			faultkv.UnknownBeforeNext: 0.02,
			faultkv.Delay:             0.01,
		}})

	db := newDeafDB(faults)
	defer closeDB(t, faults)
	clock := &steppedClock{}
	o := testOptions(t, db)
	o.Now, o.RequestTimeout = clock.now, 4*time.Second
	g, stop := newLedger(t, o)

	// Cancels come at any time, even while the Repliers are called.
	ctx, cancel := context.WithCancel(t.Context())
	var cancelling sync.WaitGroup

	cancelling.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		for ctx.Err() == nil {
			g.d.Cancel(g.random(random))
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
		}
	})

	const requests, each = 1500, 500 // of this goroutine, and of each other one
	var submitting sync.WaitGroup

	for s := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 2+s))
		submitting.Go(func() {
			for n := range uint64(each) {
				g.submit(random, requests+s*each+n)
				time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
			}
		})
	}

	outage, deaf := false, false
	for n := range uint64(requests) {
		g.submit(random, n)
		switch k := random.IntN(200); {
		case k == 0 && !deaf:
			outage = !outage
			faults.SetOutage(outage)
		case k == 1 && !deaf:
			deaf = true
			db.stop()
		case k == 2:
			clock.step(time.Duration(random.Int64N(int64(time.Minute))) - 20*time.Second)
		case k < 20:
			time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
		case k < 30 && deaf:
			deaf = false
			db.goOn()
		}
	}

	faults.SetOutage(false)
	if deaf {
		time.Sleep(10 * time.Second)
		db.goOn()
	}

	submitting.Wait()
	time.Sleep(time.Minute) // longer than any of them waits
	cancel()
	cancelling.Wait()
	stop()
	faults.Land()
	clock.step(24 * time.Hour) // all leases are over

	g.check(requests+3*each, faults.Database, clock.now)
}
