package fdbpq

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Popper pops from a queue that many processes pop from at the same time. Plain pops from one
// queue conflict, and most of their work is wasted. So Poppers use the recipe's extension for high
// contention: a pop registers a request for an item from its end of the queue, and another pop
// serves all requests in line in one transaction.
//
// As long as conflicts are rare, pops need no line. A Popper leads while its pops succeed at the
// first attempt: each takes its item itself, in a single transaction, as a plain pop does. If an
// attempt loses to a conflict, or a new Popper finds a line, the Popper follows: its pops register
// at once. It leads again when one of them has served the line. So usually one Popper leads,
// the others follow, and nothing conflicts.
//
// A leader that saw n requests in line skips them with 2n pops of 2n+1. With the other one it
// serves the line, and takes its own item after theirs. It never skips more than 32 requests. So
// among few processes two pops of three take a single transaction, and the median time of a pop
// stays near that of plain pops; among many nearly all stand in line, which gives the highest rate.
// More than 30n+15 pops skip a request once in a million times.
//
// A pop in line checks for its answer, an item or "empty", until there is one. It serves the
// line itself if its request is the first and no other Popper has taken an item between two
// checks. Nor does it wait for a leader, or for the owner of the first request, longer than
// about a second. See staged_keys.go for the keys.
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
	l   *codec.Layout
	now func() time.Time
	// random is rand.IntN, for standing.
	random func(n int) int

	mu struct {
		sync.Mutex
		oldClaims []expiringKey // of finished pops, to be removed
		unsettled []*request    // pops of unknown outcome
		swept     time.Time     // when sweepIfDue last did something
		size      int           // average size of the values served last, in bytes
		usualWait time.Duration // how long answers have taken lately
		standing  standing
	}
}

// NewPopper returns a Popper for the queue q in db.
func NewPopper(db kv.Database, q Target) *Popper {
	return &Popper{db: db, q: q, l: q.Layout(), now: time.Now, random: rand.IntN}
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
	if p.l.Fifo && end == Back {
		return Item{}, codec.ErrFIFOEnd
	}
	if err := p.Settle(ctx); err != nil {
		return Item{}, err
	}

	r := p.newRequest(end)
	began := time.Now()
	result, err := p.tryAtOnce(ctx, r)
	if result == nil {
		r.slowest = time.Since(began)
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

// tryAtOnce makes one attempt to pop without waiting for others, or registers the request: see
// standing. It returns nil if the pop has to wait for its answer.
func (p *Popper) tryAtOnce(ctx context.Context, r *request) (result *Result, err error) {
	course := p.course()
	switch course {
	case popDirectly:
		result, err = p.popDirectly(ctx, r)
	case serveLine:
		result, err = p.serve(ctx, r)
	}

	if course != standInLine {
		p.ledTo(result != nil)
	}
	if course == standInLine || errors.Is(err, errMayNotSkip) {
		err = once(ctx, p.db, func(tx kv.Transaction) error { return p.joinLine(tx, r) })
	}
	return result, err
}

func (p *Popper) course() course {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.standing.chooseCourse(p.random)
}

func (p *Popper) maySkip(line int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.standing.maySkip(line)
}

func (p *Popper) ledTo(answer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.ledTo(answer)
}

// lead records that a pop which stood in line has served the line.
func (p *Popper) lead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.role = leader
}

// errMayNotSkip ends a transaction that has found a line which it may not skip.
var errMayNotSkip = errors.New("fdbpq: there is a line")

// popDirectly takes an item. Meanwhile it looks for a line, and returns errMayNotSkip if it may not
// skip it.
func (p *Popper) popDirectly(ctx context.Context, r *request) (result *Result, err error) {
	err = once(ctx, p.db, func(tx kv.Transaction) error {
		line := tx.Snapshot().GetRange(p.l.RequestRange(), kv.RangeOptions{Limit: MaxSkipped + 1})
		now := p.now()
		if err := p.sweepIfDue(tx, now); err != nil {
			return err
		}

		results, err := Apply(tx, []Op{{Kind: OpPop, End: r.end, Queue: p.q}}, now)
		if err != nil {
			return err
		}

		requests, err := line.Get()
		if err != nil {
			return err
		}
		if !p.maySkip(len(requests)) {
			return errMayNotSkip
		}

		result = &results[0]
		if result.Err == nil {
			r.claim(tx, state.TakenItem{L: p.l, Item: &result.Item}, now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	if errors.Is(result.Err, ErrNoRoom) { // it has made some for the next
		return p.popDirectly(ctx, r)
	}
	return result, nil
}

// sweepIfDue handles what is due in the queue, every SweepEvery.
func (p *Popper) sweepIfDue(tx kv.Transaction, now time.Time) error {
	if !p.isSweepDue(now) {
		return nil
	}
	if err := due.Adopt(tx, p.l, now); err != nil {
		return err
	}
	_, err := due.ReturnDue(tx, p.l, now)
	return err
}

// isSweepDue reports whether SweepEvery has passed since it last returned true.
func (p *Popper) isSweepDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.mu.swept) < SweepEvery {
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
