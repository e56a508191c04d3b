package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// leaseRace is clients of many kinds at work on one queue at the same time, with clocks that
// differ by seconds.
type leaseRace struct {
	*fixture
	accounts leaseAccounts
	seed     uint64
	fallible kv.Database // what Batchers and Poppers see
	q        fdbpq.Target
	fifo     bool
	clock    *clock

	mu     sync.Mutex
	tokens []fdbpq.Token // that were ever given
}

// leaseRates has every fault. Together with retries they must not make the test slow.
var leaseRates = map[faultkv.Fault]float64{
	faultkv.Delay:             0.01,
	faultkv.Outage:            0.002,
	faultkv.TooOld:            0.005,
	faultkv.Throttled:         0.005,
	faultkv.Conflict:          0.05,
	faultkv.UnknownLost:       0.03,
	faultkv.UnknownMade:       0.03,
	faultkv.UnknownBeforeNext: 0.03,
	faultkv.UnknownDuringNext: 0.03,
}

// Whatever clients do at the same time, each item is settled once, a token works for one
// delivery, nothing settled comes back, and what comes back is at its old place.
func TestLeasesRace(t *testing.T) {
	_, seed := newRandom(t)
	for _, e := range engines() {
		for _, faults := range []bool{false, true} {
			for _, fifo := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/faults=%t/fifo=%t", e.name, faults, fifo), func(t *testing.T) {
					f := newFixture(t, e.open(t), fdbpq.ValueFormat(seed%2))
					lr := &leaseRace{fixture: f, fallible: f.db, seed: seed, fifo: fifo, clock: newClock(time.Now())}
					if faults {
						rates := maps.Clone(leaseRates)
						if f.db.Traits().Serial {
							delete(rates, faultkv.UnknownDuringNext)
						}
						store := faultkv.New(f.db, faultkv.Options{Seed: seed, Rates: rates, MaxDelay: time.Millisecond})
						defer store.Land()
						lr.fallible = store
					}
					lr.q = f.queue("race")
					if fifo {
						lr.q = f.fifoQueue("race")
					}
					lr.run(faults)
				})
			}
		}
	}
}

// raceSkew is how much the clocks of the clients differ in a store with faults.
const raceSkew = 6 * time.Second

// run has the clients work and checks the accounts. Poppers take part if there are faults.
func (r *leaseRace) run(faults bool) {
	var wg sync.WaitGroup
	client := func(n uint64, work func(*leaseClient)) {
		c := &leaseClient{leaseRace: r, n: n, random: rand.New(rand.NewPCG(r.seed, n))}
		skew := time.Duration(0)
		if faults {
			skew = time.Duration(c.random.Int64N(int64(raceSkew)))
		}
		c.now = func() time.Time { return r.clock.now().Add(skew) }
		c.batcher = fdbpq.NewBatcher(r.fallible, r.Keyspace)
		c.batcher.SetNow(c.now)
		wg.Go(func() {
			work(c)
			for c.batcher.Settle(c.ctx) != nil {
			}
		})
	}
	for n := range uint64(3) {
		client(n, (*leaseClient).push)
	}
	for n := range uint64(5) {
		client(10+n, (*leaseClient).work)
	}
	client(20, (*leaseClient).workPlainly)
	if faults {
		client(21, (*leaseClient).popStaged)
		client(22, (*leaseClient).popStaged)
	}
	wg.Wait()
	if faulty, ok := r.fallible.(*faultkv.DB); ok {
		faulty.Land()
	}
	r.check()
	r.drain()
	if r.Failed() {
		return
	}
	skew := time.Duration(0)
	if faults {
		skew = raceSkew
	}
	r.accounts.check(r.T, skew)
}

// drain pops what is left, which is all there and in order once everything is due.
func (r *leaseRace) drain() {
	r.clock.advance(time.Hour)
	now := r.clock.now
	b := fdbpq.NewBatcher(r.db, r.Keyspace)
	b.SetNow(now)
	var last *fdbpq.ID
	for {
		e := r.accounts.begin(now)
		results, err := b.Apply(r.ctx, []fdbpq.Op{op(opLen, r.q), op(opPopMin, r.q)})
		if err != nil {
			r.Fatal(err)
		}
		item := results[1].Item
		if errors.Is(results[1].Err, fdbpq.ErrEmpty) {
			wantEqual(r.T, "length when all is popped", results[0].Len, 0)
			break
		}
		if results[1].Err != nil {
			r.Fatal(results[1].Err)
		}
		if last != nil && compareIDs(*last, item.ID) >= 0 {
			r.Errorf("%v came before %v", *last, item.ID)
		}
		last = &item.ID
		e.kind, e.id, e.value = fdbpq.OpPop, item.ID, short(item.Value)
		r.accounts.end(e, now)
	}
	wantError(r.T, errOf(fdbpqtest.CheckInvariants(r.ctx, r.db, r.priority, r.fixture.fifo)), nil)
	for _, root := range []string{r.priority, r.fixture.fifo} {
		for _, pair := range r.stored(root) {
			if kind := string(pair.Key); strings.Contains(kind, "\x02h\x00") || strings.Contains(kind, "\x02a\x00") {
				r.Errorf("left: %q", pair.Key)
			}
		}
	}
}

// leaseClient is one client.
type leaseClient struct {
	*leaseRace
	n       uint64
	random  *rand.Rand
	now     func() time.Time
	batcher *fdbpq.Batcher
}

// failed reports whether err ended a batch, and enters it in the accounts if it may have
// happened.
func (c *leaseClient) failed(ops []fdbpq.Op, err error) bool {
	switch {
	case errors.Is(err, kv.ErrCommitUnknown):
		c.accounts.noteUnknown(ops)
	case err != nil && !errors.Is(err, kv.ErrUnavailable):
		c.Errorf("client %d: %v", c.n, err)
	}
	return err != nil
}

// push pushes with several batches at a time.
func (c *leaseClient) push() {
	type started struct {
		ops     []fdbpq.Op
		events  []leaseEvent
		pending *fdbpq.Pending
	}
	var open []started
	finish := func(s started) {
		results, err := s.pending.Wait()
		if c.failed(s.ops, err) {
			return
		}
		for i, e := range s.events {
			e.id = results[i].Item.ID
			c.accounts.end(e, c.now)
		}
	}
	for i := range 25 {
		var s started
		for k := range 1 + c.random.IntN(3) {
			value := fmt.Sprintf("%-20s", fmt.Sprintf("%d-%d-%d", c.n, i, k))
			m := message(value)
			switch c.random.IntN(12) {
			case 0:
				m.Value = append(m.Value, make([]byte, 100_000)...)
			case 1, 2, 3:
				m.Headers = map[string][]string{"Header": {"value"}}
			}
			e := c.accounts.begin(c.now)
			e.kind, e.value = fdbpq.OpPush, value
			s.events = append(s.events, e)
			s.ops = append(s.ops, fdbpq.Op{Kind: fdbpq.OpPush, Queue: c.q, Priority: c.random.Int64N(3), Message: m})
		}
		s.pending = c.batcher.Start(c.ctx, s.ops)
		if open = append(open, s); len(open) > 1 {
			finish(open[0])
			open = open[1:]
		}
		c.clock.advance(time.Duration(c.random.IntN(20)) * time.Millisecond)
	}
	for _, s := range open {
		finish(s)
	}
}

// work leases, pops, settles and looks.
func (c *leaseClient) work() {
	for range harness.RaceTimes(80, 40) {
		c.clock.advance(time.Duration(c.random.IntN(200)) * time.Millisecond)
		ops := c.someOps()
		e := c.accounts.begin(c.now)
		results, err := c.batcher.Apply(c.ctx, ops)
		if c.failed(ops, err) {
			continue
		}
		for i := range ops {
			c.note(e, &ops[i], &results[i])
		}
	}
}

// someOps draws a batch.
func (c *leaseClient) someOps() (ops []fdbpq.Op) {
	end := fdbpq.Front
	if !c.fifo && c.random.IntN(3) == 0 {
		end = fdbpq.Back
	}
	lease := fdbpq.Op{
		Kind: fdbpq.OpLease, Queue: c.q, End: end,
		Lease: time.Duration(100+c.random.IntN(3000)) * time.Millisecond,
	}
	for range 1 + c.random.IntN(3) {
		settle := fdbpq.Op{Kind: fdbpq.OpAck, Queue: c.q, Token: c.someToken()}
		switch c.random.IntN(9) {
		case 0:
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPop, Queue: c.q, End: end})
		case 1, 2, 3:
			ops = append(ops, lease)
		case 4, 5:
			next := lease
			next.Follows = true
			ops = append(ops, settle)
			for range c.random.IntN(3) { // with those of other clients
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: c.q, Token: c.someToken(), Follows: true})
			}
			ops = append(ops, next)
		case 6:
			settle.Kind, settle.Uncounted = fdbpq.OpNak, c.random.IntN(2) == 0
			settle.Delay = time.Duration(c.random.IntN(2)*c.random.IntN(2000)) * time.Millisecond
			ops = append(ops, settle)
		case 7:
			settle.Kind = fdbpq.OpExtend
			ops = append(ops, settle)
		case 8:
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: c.q, End: end}, op(opLen, c.q))
		}
	}
	return ops
}

// someToken is one of the newest tokens, whoever it was given to, or any.
func (c *leaseClient) someToken() fdbpq.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.tokens)
	if n == 0 {
		return fdbpq.Token{Fence: 1}
	}
	if c.random.IntN(4) == 0 {
		return c.tokens[c.random.IntN(n)]
	}
	return c.tokens[n-1-c.random.IntN(min(n, 12))]
}

// note enters what an operation did in the accounts.
func (c *leaseClient) note(e leaseEvent, op *fdbpq.Op, result *fdbpq.Result) {
	for _, allowed := range []error{fdbpq.ErrEmpty, fdbpq.ErrLeaseLost} {
		if errors.Is(result.Err, allowed) {
			return
		}
	}
	if result.Err != nil {
		c.Errorf("client %d: %v", c.n, result.Err)
		return
	}
	e.kind, e.id, e.value = op.Kind, result.Item.ID, short(result.Item.Value)
	e.client = c.n
	e.until, e.deliveries, e.fence = result.Lease.Until, result.Lease.Deliveries, result.Lease.Token.Fence
	switch op.Kind {
	case fdbpq.OpLen:
		if result.Len < 0 {
			c.Errorf("client %d: %d items", c.n, result.Len)
		}
		return
	case fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend:
		e.id, e.fence, e.delay, e.uncounted = op.Token.ID, op.Token.Fence, op.Delay, op.Uncounted
	}
	c.accounts.end(e, c.now)
	if op.Kind == fdbpq.OpLease {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tokens = append(c.tokens, result.Lease.Token)
	}
}

// workPlainly works inside transactions of its own. The store has no faults for it.
func (c *leaseClient) workPlainly() {
	for range harness.RaceTimes(60, 30) {
		ops := c.someOps()[:1]
		e := c.accounts.begin(c.now)
		results, err := kv.Transact(c.ctx, c.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			return fdbpq.Apply(tx, ops, c.now())
		})
		if !c.failed(ops, err) {
			c.note(e, &ops[0], &results[0])
		}
	}
}

// popStaged pops with a Popper.
func (c *leaseClient) popStaged() {
	p := staged.New(c.fallible, c.q)
	p.SetNow(c.now)
	for range 15 {
		e := c.accounts.begin(c.now)
		ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
		item, err := p.PopMin(ctx)
		cancel()
		c.clock.advance(time.Duration(c.random.IntN(100)) * time.Millisecond)
		if err == nil {
			c.note(e, &fdbpq.Op{Kind: fdbpq.OpPop}, &fdbpq.Result{Item: item})
		}
	}
	for p.Settle(c.ctx) != nil {
		c.clock.advance(time.Millisecond)
	}
}
