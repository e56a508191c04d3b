package fdbpq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Popper pops from a queue that many processes pop from at the same time. It is the
// recipe's extension for high contention. Plain pops from one queue conflict, and most of
// their work is wasted. So a pop of a Popper that has lost to a conflict registers a
// request, and the owner of the oldest request serves all of them in one transaction.
//
// A pop first tries to take an item itself, unless others are waiting, or were the last
// time: first come, first served. Otherwise, or after a conflict, it registers a request for
// an item from its end of the queue. Then it checks for its answer, an item or "empty",
// until there is one. Meanwhile it serves the line if its own request is the first, or if
// the first has been there for so long that its owner must be gone. See staged_keys.go for
// the keys.
//
// A process that dies strands nothing. Requests expire after 10 seconds, and an item that
// is not collected within 30 seconds returns to its old place, as soon as a Popper is used
// on the queue or a plain pop finds too few items. These deadlines compare clocks of
// different machines, which must agree to a few seconds.
//
// Order is best effort among items in flight: the pops served by one transaction get the
// first items of the queue, but one may return the second item before another has
// collected the first.
//
// A Popper is safe for concurrent use.
type Popper struct {
	db  kv.Database
	q   Target
	l   *layout
	now func() time.Time

	mu struct {
		sync.Mutex
		oldClaims []expiringKey // of finished pops, to be removed
		unsettled []*request    // pops of unknown outcome
		swept     time.Time     // when sweepIfDue last did something
		size      int           // average size of the values served last, in bytes
		usualWait time.Duration // how long answers have taken lately
		contended bool          // others were popping too, when last seen
	}
}

// These values come from measurements with BenchmarkContention.
const (
	// requestLife is how long a request waits to be served. After that its owner, if it
	// is still there, registers it again.
	requestLife = 10 * time.Second
	// answerLife is how long an answer waits to be collected.
	answerLife = 30 * time.Second
	// claimLife is how long a pop has to find out that it took an item, for example
	// because the store cannot be reached.
	claimLife = time.Hour
	// sweepEvery is how often a Popper handles what is due.
	sweepEvery = 5 * time.Second
	// minPatience and maxPatience bound how long the first in line may stay there before
	// another request serves the line, in addition to two expected waits. Each request
	// draws its own, so that not all lose patience at once.
	minPatience = 100 * time.Millisecond
	maxPatience = time.Second
	// serveLimit is the most requests served by one transaction.
	serveLimit = 256
	// serveBytes is about the most bytes of values served by one transaction.
	serveBytes = 1_000_000
	// minPoll and maxPoll bound the time between two checks for an answer.
	minPoll = time.Millisecond
	maxPoll = 200 * time.Millisecond
	// withdrawTime is how long a pop may take to withdraw after its context has ended.
	withdrawTime = 2 * time.Second
)

// NewPopper returns a Popper for the queue q in db.
func NewPopper(db kv.Database, q Target) *Popper {
	return &Popper{db: db, q: q, l: q.layout(), now: time.Now}
}

// PopMin removes and returns the first item, as PriorityQueue.PopMin and
// Queue.Dequeue do.
//
// Errors: ErrEmpty, ErrCorrupt, errors of the store, and the context's error. When the
// context ends or the store fails, PopMin withdraws its request, which takes up to two
// seconds. If that fails, the error wraps kv.ErrCommitUnknown: see Settle.
func (p *Popper) PopMin(ctx context.Context) (Item, error) { return p.pop(ctx, Front) }

// PopMax removes and returns the last item, as PriorityQueue.PopMax does. For a Queue it
// returns ErrOp. Otherwise it is like PopMin.
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

// newRequest makes a request, without registering it.
func (p *Popper) newRequest(end End) *request {
	r := newRequest(p.l, end, p.now())
	p.mu.Lock()
	defer p.mu.Unlock()
	r.oldClaims, p.mu.oldClaims = p.mu.oldClaims, nil
	return r
}

// finish leaves old claims to be removed by the next pop.
func (p *Popper) finish(r *request, took bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took {
		p.mu.oldClaims = append(p.mu.oldClaims, r.claimed.marker)
	} else {
		p.mu.oldClaims = append(p.mu.oldClaims, r.oldClaims...)
	}
}

// tryAtOnce makes one attempt to pop without a request. If others are waiting, or were when
// this Popper last waited, it registers the request instead, and returns nil.
func (p *Popper) tryAtOnce(ctx context.Context, r *request) (result *Result, err error) {
	var behind []chore // if nothing was found
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
		b := newTxOps(tx, []Op{{Kind: OpPop, End: r.end, Queue: p.q}}, now)
		if err := b.apply(); err != nil {
			return err
		}
		result = &b.results[0]
		if result.Err == nil {
			r.claim(tx, b.popped[0], now)
		} else if errors.Is(result.Err, ErrEmpty) {
			behind = b.behind()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(behind) > 0 {
		if _, _, err := catchUp(ctx, &tally{db: p.db}, behind, p.now(), 0); err != nil {
			return nil, err
		}
		return p.tryAtOnce(ctx, r)
	}
	return result, nil
}

// sweepIfDue handles what is due in the queue, every sweepEvery.
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

// isSweepDue reports whether sweepEvery has passed since it last returned true.
func (p *Popper) isSweepDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.mu.swept) < sweepEvery {
		return false
	}
	p.mu.swept = now
	return true
}

// once runs fn, a step of a pop, in a transaction, without retries.
func once(ctx context.Context, db kv.Database, fn func(kv.Transaction) error) error {
	tx, err := db.Begin(ctx, kv.BeginOptions{Shrinks: true})
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
