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
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// ledger is a Replier that keeps every Request that it was ever told of, and knows for each request by
// when it has to end.
type ledger struct {
	t *testing.T

	mu     sync.Mutex
	latest map[uint64]time.Time // by when each is to end
	ends   map[uint64]int
	seen   []Waiting
	tokens map[*Queue][]fdbpq.Token
	pushed map[string]error // by value; nil is durable
	popped map[string]int
}

func (g *ledger) note(r *Request, ops []fdbpq.Op, results []fdbpq.Result, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ends[numberOf(r)] > 0 {
		g.t.Errorf("request %d was called after its end", numberOf(r))
	}
	if r.Wait != nil {
		g.seen = append(g.seen, r.Waiting())
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

// random returns a Waiting that was seen, or the zero one.
func (g *ledger) random(random *rand.Rand) (w Waiting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) > 0 {
		w = g.seen[random.IntN(len(g.seen))]
	}
	return w
}

// Whatever becomes of the store and the clock, and whoever is cancelled, however late: each request ends
// once and in time, and each item comes out once.
func TestAccountsWithCancels(t *testing.T) {
	for range race.Times(8, 2) {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) { testAccountsWithCancels(t, seed) })
		if t.Failed() {
			t.Fatalf("the seed is %d", seed)
		}
	}
}

func testAccountsWithCancels(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	faults := faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{Seed: seed, Rates: map[faultkv.Fault]float64{
		faultkv.Conflict: 0.02, faultkv.UnknownLost: 0.02, faultkv.UnknownMade: 0.02, faultkv.UnknownBeforeNext: 0.02, faultkv.Delay: 0.01,
	}})
	db := &deafDB{Database: faults}
	defer func() {
		if err := faults.Close(); err != nil {
			t.Error(err)
		}
	}()
	clock := &steppedClock{}
	var d *Dispatcher
	d = New(Options{
		DB: db, Keyspace: keyspace, Now: clock.now, Lanes: 2, MaxBatch: 20, MaxBatchBytes: 4 << 20, MaxPending: 1 << 20, MaxPendingBytes: 64 << 20,
		MaxWaiters: 1 << 20, RequestTimeout: 4 * time.Second, Warn: func(string, ...any) {}, BatchDone: func(int) {}, RequeueLate: givesBack(&d),
	})
	newMoves().watch(t, d)
	stop := run(t, d)
	g := &ledger{
		t: t, latest: map[uint64]time.Time{}, ends: map[uint64]int{}, tokens: map[*Queue][]fdbpq.Token{},
		pushed: map[string]error{}, popped: map[string]int{},
	}

	// Cancels come at any time, also while the Repliers are called.
	ctx, cancel := context.WithCancel(t.Context())
	var cancelling sync.WaitGroup
	cancelling.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		for ctx.Err() == nil {
			d.Cancel(g.random(random))
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
		}
	})

	const requests = 1500
	outage, deaf := false, false
	for n := range uint64(requests) {
		g.submit(d, random, n)
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
	time.Sleep(time.Minute) // longer than any of them waits
	cancel()
	cancelling.Wait()
	stop()
	for n := range uint64(requests) {
		if g.ends[n] != 1 {
			t.Errorf("request %d ended %d times", n, g.ends[n])
		}
	}
	if n, _ := d.Pending(); n != 0 || d.Waiters() != 0 {
		t.Errorf("%d requests and %d waiters are left", n, d.Waiters())
	}
	for _, w := range g.seen {
		d.Cancel(w) // nothing happens
	}
	faults.Land()
	clock.step(24 * time.Hour) // all leases are over
	g.drain(d, clock, faults)
	for value, err := range g.pushed {
		unknown := errors.Is(err, ErrUnknownOutcome)
		if got := g.popped[value]; got > 1 || got == 0 && err == nil || got > 0 && err != nil && !unknown {
			t.Errorf("%s came out %d times, its push ended with %v", value, got, err)
		}
	}
}

// submit submits a random request.
func (g *ledger) submit(d *Dispatcher, random *rand.Rand, n uint64) {
	q, err := d.Queue(subjects.Priority, fmt.Sprint("jobs-", random.IntN(3)))
	if err != nil {
		g.t.Fatal(err)
	}
	r := &Request{Queue: q, Replier: number(g, n), Received: time.Now(), Size: 10}
	op := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q.Target, End: fdbpq.End(random.IntN(2))}
	if random.IntN(3) == 0 {
		op.Kind, op.Lease = fdbpq.OpLease, fdbpq.MinLease+time.Duration(random.Int64N(int64(20*time.Second)))
	}
	l := d.lanes[0]
	latest := r.Received.Add(d.options.RequestTimeout + l.graceTime())
	var ops []fdbpq.Op
	switch k := random.IntN(10); {
	case k < 4:
		for i := range 1 + random.IntN(3) {
			ops = append(ops, push(q, fmt.Sprint(n, ".", i)))
			ops[i].Delay = time.Duration(max(0, random.Int64N(int64(10*time.Second))-int64(5*time.Second)))
		}
	case k < 8:
		ops, r.Pops = []fdbpq.Op{op}, 1+random.IntN(30)
		r.Wait = &Wait{
			Until: r.Received.Add(time.Duration(random.Int64N(int64(30 * time.Second)))), OnlyIfEmpty: random.IntN(4) == 0,
			Heartbeat: time.Second,
		}
		latest = r.Wait.Until.Add(l.lateTime())
	case k < 9:
		ops, r.Pops = []fdbpq.Op{op}, 1+random.IntN(30)
	default:
		g.mu.Lock()
		tokens := g.tokens[q]
		g.mu.Unlock()
		if len(tokens) == 0 {
			ops = []fdbpq.Op{op}
			break
		}
		ops = []fdbpq.Op{{Kind: fdbpq.OpNak, Queue: q.Target, Token: tokens[random.IntN(len(tokens))]}}
	}
	g.mu.Lock()
	g.latest[n] = latest
	g.mu.Unlock()
	if err := d.Submit(r, ops); err != nil {
		g.t.Error(err)
	}
}

// drain takes what is left.
func (g *ledger) drain(d *Dispatcher, clock *steppedClock, faults *faultkv.DB) {
	batcher := fdbpq.NewBatcher(faults.Database, d.options.Keyspace)
	batcher.SetNow(clock.now)
	for i := range 3 {
		q, err := d.Queue(subjects.Priority, fmt.Sprint("jobs-", i))
		if err != nil {
			g.t.Fatal(err)
		}
		for {
			results, err := batcher.Apply(g.t.Context(), []fdbpq.Op{pop(q)})
			if err != nil {
				g.t.Fatal(err)
			}
			if results[0].Err != nil {
				break
			}
			g.popped[string(results[0].Item.Value)]++
		}
	}
}
