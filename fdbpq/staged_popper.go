package fdbpq

import (
	"context"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Popper pops from a queue that many others pop from at the same time, each
// in a transaction of its own. It is the recipes' extension for high
// contention: where plain pops of one queue would conflict with each other
// and most of the work would be wasted, a pop that lost once writes down
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
		oldClaims []expiringKey // of earlier pops, to be removed
		unsettled []*request    // pops of unknown outcome
		swept     time.Time     // when what had expired was last looked for
		size      int           // bytes of the values last served, on average
		usualWait time.Duration // how long requests waited for their answers lately
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
	claimLife = time.Hour
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
	result, err := p.tryAtOnce(ctx, r)
	if result == nil {
		result, err = p.awaitAnswer(ctx, r, err)
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
	r.oldClaims, p.mu.oldClaims = p.mu.oldClaims, nil
	return r
}

// finish leaves what is to be removed to the next pop.
func (p *Popper) finish(r *request, took bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took {
		p.mu.oldClaims = append(p.mu.oldClaims, r.claimed.marker)
	} else {
		p.mu.oldClaims = append(p.mu.oldClaims, r.oldClaims...)
	}
}

// begin tries once to pop without waiting. If others are waiting already, or
// were when it last waited, it registers instead and returns nil.
func (p *Popper) tryAtOnce(ctx context.Context, r *request) (result *Result, err error) {
	err = once(ctx, p.db, func(tx kv.Transaction) error {
		last, err := p.lastInLine(tx).Get()
		if err != nil {
			return err
		}
		if len(last) > 0 || p.isContended() {
			return p.register(tx, r, last)
		}
		now := p.now()
		if err := p.sweepIfDue(tx, now); err != nil {
			return err
		}
		b, err := apply(tx, []Op{{Kind: OpPop, End: r.end, Queue: p.q}}, now, nil)
		if err != nil {
			return err
		}
		result = &b.results[0]
		if result.Err == nil {
			r.claim(tx, b.popped[0].stored, now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// sweep looks for what is due if it is time to do so.
func (p *Popper) sweepIfDue(tx kv.Transaction, now time.Time) error {
	if !p.isSweepDue(now) {
		return nil
	}
	if err := adopt(tx, p.l, now); err != nil {
		return err
	}
	_, err := returnDue(tx, p.l, now)
	return err
}

// mustSweep reports whether it is time to look for what has expired.
func (p *Popper) isSweepDue(now time.Time) bool {
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
	tx, err := db.Begin(ctx, kv.BeginOptions{})
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
