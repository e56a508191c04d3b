package fdbpq

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Popper pops from a queue that many others pop from at the same time, each
// in a transaction of its own. It is the recipes' extension for high
// contention: where plain pops of one queue would conflict with each other
// and most of the work would be done in vain, a pop that lost once writes down
// its request, and whoever finds its own request to be the oldest serves all
// of them, in one transaction.
//
// A pop first tries to take the item itself, unless others are waiting, or were
// the last time: those who came first are served first. Otherwise, and if it
// lost to a conflict, it registers a request, which says which end it wants.
// Then it looks for its answer until that is there, and serves requests when
// its own is the first in line, or when the first in line has been there for so
// long that its owner must be gone. An answer is an item or "empty". See
// staged_keys.go for the keys.
//
// Nothing is stranded by a process that dies: requests expire after
// requestLife, and an item that was not collected within answerLife goes back
// to its old place. These times are compared between the clocks of different
// machines, which must not be apart by more than a few seconds. Items go back
// when a Popper of the queue is used, or when a plain pop finds too few.
//
// Order is best effort among the items in flight: pops that are served by one
// transaction get the first items there are, but one may return the second
// item before another has collected the first.
//
// A Popper is safe for concurrent use.
type Popper struct {
	db  kv.Database
	q   Target
	l   *layout
	now func() time.Time

	mu struct {
		sync.Mutex
		done      []mark        // of earlier pops, to be removed
		unsettled []*request    // pops of unknown outcome
		swept     time.Time     // when what had expired was last looked for
		size      int           // bytes of the values last served, on average
		wait      time.Duration // how long requests waited for their answers lately
		contended bool          // others popped too when last heard, so one should wait
	}
}

// These were chosen by measuring: see BenchmarkContention.
const (
	// requestLife is how long a request waits to be served. A requester that
	// lives longer registers again.
	requestLife = 10 * time.Second
	// answerLife is how long an answer waits to be collected.
	answerLife = 30 * time.Second
	// markLife is how long a pop has to find out that it took an item, should
	// the store be out of reach meanwhile.
	markLife = time.Hour
	// sweepEvery is how often a Popper looks for what has expired.
	sweepEvery = 5 * time.Second
	// minPatience and maxPatience bound how long the first in line may stay
	// the first before another serves the line, besides the time of two waits.
	// Each request has its own patience, so that they do not all lose it at once.
	minPatience = 100 * time.Millisecond
	maxPatience = time.Second
	// serveLimit is the most requests served by one transaction.
	serveLimit = 256
	// serveBytes is about the most bytes of values served by one transaction.
	serveBytes = 1_000_000
	// minLook and maxLook bound the time between two looks for an answer.
	minLook = time.Millisecond
	maxLook = 200 * time.Millisecond
	// withdrawTime is how long a pop whose context ended may take to withdraw.
	withdrawTime = 2 * time.Second
)

// NewPopper returns a Popper for q, a *PriorityQueue or a *Queue, in db.
func NewPopper(db kv.Database, q Target) *Popper {
	return &Popper{db: db, q: q, l: q.layout(), now: time.Now}
}

// PopMin removes and returns the first item, as PriorityQueue.PopMin and
// Queue.Dequeue do.
//
// Errors: ErrEmpty, ErrCorrupt, errors of the store, and the context's error.
// When the context ends, or the store fails, the pop is withdrawn, which may
// take up to two seconds more. An error that wraps kv.ErrCommitUnknown says
// that this failed: see Settle.
func (p *Popper) PopMin(ctx context.Context) (Item, error) { return p.pop(ctx, Front) }

// PopMax removes and returns the last item, as PriorityQueue.PopMax does. A
// Queue gives ErrOp. Otherwise it is like PopMin.
func (p *Popper) PopMax(ctx context.Context) (Item, error) { return p.pop(ctx, Back) }

func (p *Popper) pop(ctx context.Context, end End) (Item, error) {
	if p.l.fifo && end == Back {
		return Item{}, errFIFOEnd
	}
	if err := p.Settle(ctx); err != nil {
		return Item{}, err
	}
	r := p.newRequest(end)
	result, err := p.begin(ctx, r)
	if result == nil {
		result, err = p.wait(ctx, r, err)
	}
	p.finish(r, err == nil && result.Err == nil)
	if err != nil {
		return Item{}, err
	}
	return result.Item, result.Err
}

// newRequest makes a request that is not registered yet.
func (p *Popper) newRequest(end End) *request {
	r := newRequest(p.l, end, p.now())
	p.mu.Lock()
	defer p.mu.Unlock()
	r.removes, p.mu.done = p.mu.done, nil
	return r
}

// finish leaves what is to be removed to the next pop.
func (p *Popper) finish(r *request, took bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took {
		p.mu.done = append(p.mu.done, r.taken.mark)
	} else {
		p.mu.done = append(p.mu.done, r.removes...)
	}
}

// begin tries once to pop without waiting. If others are waiting already, or
// were when it last waited, it registers instead and returns nil.
func (p *Popper) begin(ctx context.Context, r *request) (result *Result, err error) {
	err = once(ctx, p.db, func(tx kv.Transaction) error {
		last, err := p.lastInLine(tx).Get()
		if err != nil {
			return err
		}
		if len(last) > 0 || p.isContended() {
			return p.register(tx, r, last)
		}
		now := p.now()
		if err := p.sweep(tx, now); err != nil {
			return err
		}
		b, err := apply(tx, []Op{{Kind: OpPop, End: r.end, Queue: p.q}}, now, nil)
		if err != nil {
			return err
		}
		result = &b.results[0]
		if result.Err == nil {
			r.take(tx, b.popped[0].stored, now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// wait looks for the answer to the request until it is there. err is what the
// attempt to do without ended with.
func (p *Popper) wait(ctx context.Context, r *request, err error) (result *Result, _ error) {
	p.setContended(true)
	began := p.now()
	expected := p.expectedWait()
	pause := expected * 3 / 4
	r.patience += 2 * expected // it looks that rarely
	var backoff kv.Backoff
	for result == nil {
		lost := errors.Is(err, kv.ErrConflict) // and must see what became of the request
		switch {
		case ctx.Err() != nil:
			return nil, p.withdraw(ctx, r, ctx.Err())
		case err != nil && !kv.Retryable(err) && !kv.MaybeCommitted(err):
			return nil, p.withdraw(ctx, r, err)
		case err != nil && !lost:
			if err = backoff.Wait(ctx); err != nil {
				continue
			}
		case !lost && r.shouldServe(p.now()):
			if result, err = p.serve(ctx, r); result != nil || err != nil {
				continue
			}
		case !lost:
			if r.early {
				pause = minLook
			}
			sleep(ctx, pause*3/4+rand.N(pause/2))
			pause = max(minLook, expected/8)
		}
		result, err = p.look(ctx, r)
	}
	p.waited(p.now().Sub(began))
	return result, nil
}

func (p *Popper) isContended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.contended
}

func (p *Popper) setContended(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.contended = is
}

// expectedWait is about how long an answer will take.
func (p *Popper) expectedWait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(2*minLook, p.mu.wait), maxLook)
}

// waited notes how long an answer took.
func (p *Popper) waited(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.wait = (p.mu.wait + d) / 2
}

// look collects the answer to the request if it is there. If it is not, it
// makes sure that the request is registered, notes who is first in line and
// returns nil.
func (p *Popper) look(ctx context.Context, r *request) (result *Result, err error) {
	err = once(ctx, p.db, func(tx kv.Transaction) error {
		answer := tx.Get(r.answerKey)
		if len(r.takings) > 0 {
			taken, err := r.marked(tx.Get(r.markKey))
			if err != nil {
				return err
			}
			if taken != nil {
				r.taken = taken
				result = &Result{Item: taken.stored.item}
				return nil
			}
		}
		value, err := answer.Get()
		if err != nil {
			return err
		}
		if value != nil {
			result, err = p.collect(tx, r, value)
			return err
		}
		return p.stayInLine(tx, r)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// collect takes what the answer to r gives it, in tx.
func (p *Popper) collect(tx kv.Transaction, r *request, encoded []byte) (*Result, error) {
	a, err := parseAnswer(encoded)
	if err != nil {
		return nil, err
	}
	r.fence(tx)
	p.l.clearUntil(tx, a.deadline, r.answerKey)
	if a.item == nil {
		return &Result{Err: ErrEmpty}, nil
	}
	read, metas := tx.Get(r.valueKey), p.l.readMetas(tx, a.item)
	value, err := read.Get()
	if err != nil {
		return nil, err
	}
	s := p.l.storedAs(*a.item, kv.KeyValue{Key: p.l.itemKey(a.item), Value: value})
	s.metas = metas
	if err := s.wait(); err != nil {
		return nil, err
	}
	tx.Clear(r.valueKey)
	now := p.now()
	g := ledger{tx: tx, l: p.l, now: now}
	if s.err != nil {
		g.giveBack(a.item, value)
		g.flush()
		return &Result{Err: s.err}, nil
	}
	g.settle(&s)
	r.take(tx, &s, now)
	return &Result{Item: s.item}, nil
}

// stayInLine notes who is first in line and registers the request if it is not.
// A request that has been registered before takes its old place again: it may
// be that it is on its way there.
func (p *Popper) stayInLine(tx kv.Transaction, r *request) error {
	if r.key == nil {
		last, err := p.lastInLine(tx).Get()
		if err != nil {
			return err
		}
		return p.register(tx, r, last)
	}
	line := tx.Snapshot().GetRange(p.l.requestRange(), kv.RangeOptions{Limit: 1})
	value, err := tx.Get(r.key).Get()
	if err != nil {
		return err
	}
	first, err := line.Get()
	if err != nil {
		return err
	}
	if value == nil {
		return p.register(tx, r, first)
	}
	r.see(first, p.now())
	return nil
}

func (p *Popper) lastInLine(tx kv.Transaction) kv.Future[[]kv.KeyValue] {
	return tx.Snapshot().GetRange(p.l.requestRange(), kv.RangeOptions{Limit: 1, Reverse: true})
}

// register writes the request down: after the last one in line, or where it
// was registered first. line has some request if there are any, the last one
// the first time.
func (p *Popper) register(tx kv.Transaction, r *request, line []kv.KeyValue) error {
	if r.key == nil {
		count := int64(0)
		if len(line) > 0 {
			last, err := p.l.parseWaiter(line[0])
			if err != nil {
				return err
			}
			count = following(last.count)
		}
		r.key = p.l.requestKey(count, r.id)
	}
	r.fence(tx)
	tx.Set(r.key, encodeRequest(r.end, p.now().Add(requestLife)))
	r.first, r.early = "", len(line) == 0
	return nil
}

// sweep looks for what is due if it is time to do so.
func (p *Popper) sweep(tx kv.Transaction, now time.Time) error {
	if !p.mustSweep(now) {
		return nil
	}
	if err := adopt(tx, p.l, now); err != nil {
		return err
	}
	_, err := sweep(tx, p.l, now)
	return err
}

// mustSweep reports whether it is time to look for what has expired.
func (p *Popper) mustSweep(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.mu.swept) < sweepEvery {
		return false
	}
	p.mu.swept = now
	return true
}

// once runs fn in a transaction of which there is only one attempt.
func once(ctx context.Context, db kv.Database, fn func(kv.Transaction) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Cancel()
	if err := fn(tx); err != nil {
		return err
	}
	_, err = tx.Commit().Get()
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
