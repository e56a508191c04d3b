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
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// leaseRace is clients of many kinds at work on one queue at the same time, with clocks that
// differ by seconds, and the books of it.
type leaseRace struct {
	*fixture
	books    *books.Books
	seed     uint64
	fallible kv.Database // what Batchers and Poppers see
	q        fdbpq.Target
	fifo     bool
	clock    *clock
	zero     time.Time

	mu    sync.Mutex
	grips []leaseGrip // that were ever given
}

// leaseGrip is a lease of an item, for any client that uses its token.
type leaseGrip struct {
	token      fdbpq.Token
	value      string
	wait       time.Duration
	deliveries int64
}

// Whatever clients do at the same time, each item is settled once, a token works for one delivery,
// and what comes back is at its old place.
func TestLeasesRace(t *testing.T) {
	_, seed := newRandom(t)
	for _, e := range engines() {
		for _, faults := range []bool{false, true} {
			for _, fifo := range []bool{false, true} {
				if !harness.Nightly && faults == fifo {
					continue
				}
				name := fmt.Sprintf("%s/faults=%t/fifo=%t", e.name, faults, fifo)
				t.Run(name, func(t *testing.T) {
					f := newFixture(t, e.open(t), fdbpq.ValueFormat(seed%2))
					lr := &leaseRace{
						fixture:  f,
						fallible: f.db,
						seed:     seed,
						fifo:     fifo,
						clock:    newClock(time.Now()),
					}

					if lr.zero = lr.clock.now(); faults {
						// Every fault, but so that retries do not make the test slow.
						rates := maps.Clone(rates)
						rates[faultkv.Delay], rates[faultkv.Outage] = 0.01, 0.002

						if f.db.Traits().Serial {
							delete(rates, faultkv.UnknownDuringNext)
						}

						store := faultkv.New(f.db,
							faultkv.Options{Seed: seed, Rates: rates, MaxDelay: time.Millisecond})
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

// run has the clients work and closes the books. Poppers take part if there are faults.
func (r *leaseRace) run(faults bool) {
	skew := time.Duration(1) // between clocks, less than that
	if faults {
		skew = 6 * time.Second
	}

	r.books = books.Named(int64(skew))
	var wg sync.WaitGroup

	// The number of a client is also that of its random numbers.
	client := func(n uint64, work func(*leaseClient)) {
		c := r.client(n, r.fallible, skew)
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
	balance, err := r.books.Close(r.since() / 1e6)
	if err != nil {
		r.Error(err)
	}

	r.Logf("%+v", balance)
}

// since is the time by the clock of the books.
func (r *leaseRace) since() int64 { return int64(r.clock.now().Sub(r.zero)) }

// drain pops the rest, which must be complete and in order once everything is due.
func (r *leaseRace) drain() {
	r.clock.advance(time.Hour)
	const number, skew = 30, 1
	c := r.client(number, r.db, skew)
	var last *fdbpq.ID

	for {
		results, _ := c.make([]fdbpq.Op{op(opLen, r.q), op(opPopMin, r.q)}, c.apply)
		if r.Failed() {
			return
		}

		item := results[1].Item
		if results[1].Err != nil {
			wantEqual(r.T, "length when all is popped", results[0].Len, 0)
			break
		}

		if last != nil && last.Compare(&item.ID) >= 0 {
			r.Errorf("%v came before %v", *last, item.ID)
		}

		last = &item.ID
	}
	wantError(r.T, errOf(fdbpqtest.CheckInvariants(r.ctx, r.db, r.priority, r.fixture.fifo)), nil)

	for _, root := range []string{r.priority, r.fixture.fifo} {
		for _, pair := range r.stored(root) {
			key := string(pair.Key) // "h" is the kind of held items, "a" the kind of histories
			if strings.Contains(key, "\x02h\x00") || strings.Contains(key, "\x02a\x00") {
				r.Errorf("left: %q", pair.Key)
			}
		}
	}
}

// fenceBits are the low bits of the first fences of an item, which are random. Those above them
// count the leases and naks.
const fenceBits = 48

// leaseClient is one client.
type leaseClient struct {
	*leaseRace
	n       uint64
	random  *rand.Rand
	now     func() time.Time
	batcher *fdbpq.Batcher
}

// client returns a client whose clock is ahead by less than skew.
func (r *leaseRace) client(n uint64, db kv.Database, skew time.Duration) *leaseClient {
	c := &leaseClient{leaseRace: r, n: n, random: rand.New(rand.NewPCG(r.seed, n))}
	ahead := time.Duration(c.random.Int64N(int64(skew)))
	c.now = func() time.Time { return r.clock.now().Add(ahead) }
	c.batcher = fdbpq.NewBatcher(db, r.Keyspace)
	c.batcher.SetNow(c.now)

	return c
}

// entry is an operation as the books know it, and where it is in its batch.
type entry struct {
	books.Operation
	books.Intent
	at int
}

// short is what the books know of a value.
func short(value []byte) string { return string(value[:min(len(value), 20)]) }

var entryKinds = map[fdbpq.OpKind]books.Kind{
	fdbpq.OpPush:   books.Push,
	fdbpq.OpPop:    books.PopMin,
	fdbpq.OpLease:  books.LeaseMin,
	fdbpq.OpPeek:   books.PeekMin,
	fdbpq.OpLen:    books.Len,
	fdbpq.OpAck:    books.Ack,
	fdbpq.OpNak:    books.Nak,
	fdbpq.OpExtend: books.Extend,
}

// begin enters that a batch is sent. Acknowledgements that are made together are one operation.
func (c *leaseClient) begin(ops []fdbpq.Op) (entries []*entry) {
	for i := range ops {
		o, e := &ops[i], &entry{at: i}
		e.Queue = "race"
		e.Kind = entryKinds[o.Kind]
		e.Call = c.since()
		e.Value = short(o.Message.Value)
		e.Delay, e.Snooze, e.Wait = int64(max(o.Delay, 0)), o.Uncounted, int64(o.Lease)

		if e.Kind.Settles() {
			g := c.gripOf(o.Token)
			e.Value = g.value
			e.ID = o.Token.ID.String()
			e.Fence = o.Token.Fence >> fenceBits
			e.Wait = int64(g.wait)
			if o.RetryDelay > 0 {
				e.Delay = int64(new(fdbpq.Settings).RetryAfter(g.deliveries, o.RetryDelay))
			}
		}

		if o.Kind == fdbpq.OpAck && o.Follows {
			first := entries[len(entries)-1]
			first.Also = append(first.Also, books.Item{Value: e.Value, ID: e.ID, Fence: e.Fence})
			continue
		}

		entries = append(entries, e)
	}

	for _, e := range entries {
		e.Intent = c.books.Begin(&e.Operation)
	}

	return entries
}

// end enters what a batch did. Items that it popped although its outcome is unknown are restored,
// and its leases end.
func (c *leaseClient) end(entries []*entry, ops []fdbpq.Op, results []fdbpq.Result, err error) {
	if err != nil && !errors.Is(err, kv.ErrCommitUnknown) && !errors.Is(err, kv.ErrUnavailable) {
		c.Errorf("client %d: %v", c.n, err)
	}
	for _, e := range entries {
		switch e.Return = c.since(); {
		case err == nil:
			c.read(e, &results[e.at])
		case !errors.Is(err, kv.ErrCommitUnknown):
			e.Outcome = books.Refused
		case e.Kind.Pops() || e.Kind.Leases():
			e.Outcome = books.Gone
		default:
			e.Outcome = books.Unknown
		}

		c.books.End(&e.Operation, e.Intent)
		if len(e.Items) > 0 { // only now others may use its token
			c.mu.Lock()
			lease := &results[e.at].Lease
			c.grips = append(c.grips, leaseGrip{
				lease.Token, e.Items[0].Value, ops[e.at].Lease, lease.Deliveries,
			})
			c.mu.Unlock()
		}
	}
}

// read reads the result of an operation.
func (c *leaseClient) read(e *entry, result *fdbpq.Result) {
	var lost *fdbpq.LostLeases
	if errors.As(result.Err, &lost) {
		e.Lost = lost.Lost
	}

	item := books.Item{ID: result.Item.ID.String(), Value: short(result.Item.Value)}
	switch {
	case errors.Is(result.Err, fdbpq.ErrEmpty):
		e.Outcome = books.Empty
	// The lease followed an acknowledgement.
	case errors.Is(result.Err, fdbpq.ErrLeaseLost) && e.Kind == books.LeaseMin:
		e.Outcome = books.Refused
	case errors.Is(result.Err, fdbpq.ErrLeaseLost):
		e.Outcome = books.Stale
	case result.Err != nil || result.Len < 0:
		c.Errorf("client %d: %v, %d items", c.n, result.Err, result.Len)
	case e.Kind == books.Extend:
		e.Outcome, e.Until = books.Done, int64(result.Lease.Until.Sub(c.zero))
	case e.Kind == books.LeaseMin:
		lease := &result.Lease
		item.Fence, item.Deliveries = lease.Token.Fence>>fenceBits, lease.Deliveries
		item.Until = int64(lease.Until.Sub(c.zero))
		e.Outcome, e.Items = books.Done, []books.Item{item}
	case e.Kind == books.Push:
		e.Outcome, e.ID = books.Done, item.ID
	case e.Kind.Settles() || e.Kind == books.Len:
		e.Outcome = books.Done
	default:
		e.Outcome, e.ID, e.Value = books.Done, item.ID, item.Value
	}
}

// make makes a batch, and enters it.
func (c *leaseClient) make(
	ops []fdbpq.Op, apply func([]fdbpq.Op) ([]fdbpq.Result, error),
) ([]fdbpq.Result, error) {
	entries := c.begin(ops)
	results, err := apply(ops)
	c.end(entries, ops, results, err)
	return results, err
}

func (c *leaseClient) apply(ops []fdbpq.Op) ([]fdbpq.Result, error) {
	return c.batcher.Apply(c.ctx, ops)
}

// push pushes with several batches at a time.
func (c *leaseClient) push() {
	var finish func()
	for i := range 25 {
		var ops []fdbpq.Op
		for k := range 1 + c.random.IntN(3) {
			m := message(fmt.Sprintf("%-20s", fmt.Sprintf("%d-%d-%d", c.n, i, k)))
			switch c.random.IntN(12) {
			case 0:
				m.Value = append(m.Value, make([]byte, 100_000)...)
			case 1, 2, 3:
				m.Headers = map[string][]string{"Header": {"value"}}
			}

			ops = append(ops,
				fdbpq.Op{Kind: fdbpq.OpPush, Queue: c.q, Priority: c.random.Int64N(3), Message: m})
		}

		entries := c.begin(ops)
		pending := c.batcher.Start(c.ctx, ops)

		if finish != nil {
			finish()
		}

		finish = func() {
			results, err := pending.Wait()
			c.end(entries, ops, results, err)
		}

		c.clock.advance(time.Duration(c.random.IntN(20)) * time.Millisecond)
	}

	finish()
}

// work leases, pops, settles and looks.
func (c *leaseClient) work() {
	for range harness.RaceTimes(80, 40) {
		c.clock.advance(time.Duration(c.random.IntN(200)) * time.Millisecond)
		_, _ = c.make(c.someOps(), c.apply)
	}
}

// workPlainly works inside transactions of its own. The store has no faults for it.
func (c *leaseClient) workPlainly() {
	for range harness.RaceTimes(60, 30) {
		_, _ = c.make(c.someOps()[:1], func(ops []fdbpq.Op) ([]fdbpq.Result, error) {
			return kv.Transact(c.ctx, c.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
				return fdbpq.Apply(tx, ops, c.now())
			})
		})
	}
}

// popStaged pops with a Popper, which restores the items of pops without an answer.
func (c *leaseClient) popStaged() {
	p := staged.New(c.fallible, c.q)
	p.SetNow(c.now)

	for range 15 {
		_, _ = c.make([]fdbpq.Op{{Kind: fdbpq.OpPop}}, func([]fdbpq.Op) ([]fdbpq.Result, error) {
			ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
			defer cancel()
			item, err := p.PopMin(ctx)

			if err != nil && !errors.Is(err, fdbpq.ErrEmpty) {
				return nil, kv.ErrCommitUnknown
			}

			return []fdbpq.Result{{Item: item, Err: err}}, nil
		})
		c.clock.advance(time.Duration(c.random.IntN(100)) * time.Millisecond)
	}

	for p.Settle(c.ctx) != nil {
		c.clock.advance(time.Millisecond)
	}
}

// someOps draws a batch.
func (c *leaseClient) someOps() (ops []fdbpq.Op) {
	end := fdbpq.Front
	if !c.fifo && c.random.IntN(3) == 0 {
		end = fdbpq.Back
	}

	lease := fdbpq.Op{
		Kind:  fdbpq.OpLease,
		Queue: c.q,
		End:   end,
		Lease: time.Duration(100+c.random.IntN(3000)) * time.Millisecond,
	}

	for range 1 + c.random.IntN(3) {
		settle := fdbpq.Op{Kind: fdbpq.OpAck, Queue: c.q, Token: c.someToken()}
		kind := c.random.IntN(9)

		if settle.Token.Fence == 0 {
			kind %= 4
		}

		switch kind {
		case 0:
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPop, Queue: c.q, End: end})
		case 1, 2, 3:
			ops = append(ops, lease)
		case 4, 5:
			next := lease
			next.Follows = true
			ops = append(ops, settle)

			for range c.random.IntN(3) { // with those of other clients
				ops = append(ops,
					fdbpq.Op{Kind: fdbpq.OpAck, Queue: c.q, Token: c.someToken(), Follows: true})
			}

			ops = append(ops, next)
		case 6:
			settle.Kind, settle.Uncounted = fdbpq.OpNak, c.random.IntN(2) == 0
			settle.Delay = time.Duration(c.random.IntN(2)*c.random.IntN(2000)) * time.Millisecond
			if settle.Delay == 0 && !settle.Uncounted {
				settle.Delay = fdbpq.Backoff
				settle.RetryDelay = time.Duration(1+c.random.IntN(200)) * time.Millisecond
			}
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

// someToken is one of the newest tokens, or any, given to this client or another, so several may
// use it at once.
func (c *leaseClient) someToken() (token fdbpq.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if n := len(c.grips); n > 0 && c.random.IntN(4) == 0 {
		token = c.grips[c.random.IntN(n)].token
	} else if n > 0 {
		token = c.grips[n-1-c.random.IntN(min(n, 12))].token
	}

	return token
}

// gripOf returns the lease of a token.
func (c *leaseClient) gripOf(token fdbpq.Token) leaseGrip {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, g := range c.grips {
		if g.token == token {
			return g
		}
	}

	return leaseGrip{}
}
