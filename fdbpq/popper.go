package fdbpq

import (
	"context"
	"errors"
	"fmt"
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
// A pop first tries to take the item itself, unless others are waiting, so
// that those who came first are served first. Having lost to a conflict, it
// registers a request, which says which end it wants. Then it looks for its
// answer until that is there, and serves requests when its own is the first in
// line, or when the first in line has been there for so long that its owner
// must be gone. An answer is an item or "empty". See staging.go for the keys.
//
// Nothing is stranded by a process that dies: requests expire after
// requestLife, and an item that was not collected within answerLife goes back
// to its old place. These times are compared between the clocks of different
// machines, which must not be apart by more than a few seconds.
//
// Order is best effort among the items in flight: pops that are served by one
// transaction get the first items there are, but one may return the second
// item before another has collected the first.
//
// A Popper is safe for concurrent use.
type Popper struct {
	db kv.Database
	q  Target
	l  *layout

	mu struct {
		sync.Mutex
		collected [][]byte // answers that were collected and can be removed
	}
}

const (
	// requestLife is how long a request waits to be served. A requester that
	// lives longer registers again.
	requestLife = 10 * time.Second
	// answerLife is how long an answer waits to be collected.
	answerLife = 30 * time.Second
	// collectedLife is how long a pop has to find out that it took an item.
	collectedLife = 10 * answerLife
	// patience is how long the first in line may stay the first before others
	// serve the line.
	patience = 100 * time.Millisecond
	// serveLimit is the most requests served by one transaction.
	serveLimit = 256
	// minLook and maxLook bound the time between two looks for an answer.
	minLook = 2 * time.Millisecond
	maxLook = 16 * time.Millisecond
	// withdrawTime is how long a pop whose context ended may take to withdraw.
	withdrawTime = 2 * time.Second
)

// NewPopper returns a Popper for q, a *PriorityQueue or a *Queue, in db.
func NewPopper(db kv.Database, q Target) *Popper {
	return &Popper{db: db, q: q, l: q.layout()}
}

// PopMin removes and returns the first item, as PriorityQueue.PopMin and
// Queue.Dequeue do.
//
// Errors: ErrEmpty, ErrCorrupt, errors of the store, and the context's error.
// When the context ends the pop is withdrawn, which may take up to two seconds
// more; an error that wraps kv.ErrCommitUnknown says that this failed.
func (p *Popper) PopMin(ctx context.Context) (Item, error) { return p.pop(ctx, OpPopMin) }

// PopMax removes and returns the last item, as PriorityQueue.PopMax does. A
// Queue gives ErrOp. Otherwise it is like PopMin.
func (p *Popper) PopMax(ctx context.Context) (Item, error) { return p.pop(ctx, OpPopMax) }

func (p *Popper) pop(ctx context.Context, kind OpKind) (Item, error) {
	if p.l.fifo && kind == OpPopMax {
		return Item{}, errFIFOEnd
	}
	r := p.newRequest(kind)
	item, err := p.fast(ctx, r)
	if errors.Is(err, errContended) {
		item, err = p.wait(ctx, r)
	}
	p.finish(r, err)
	return item, err
}

// newRequest makes a request that is not registered yet.
func (p *Popper) newRequest(kind OpKind) *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &request{kind: kind, id: newID(0, 0, time.Now(), uniqueBytes(1), false).Random, removes: p.mu.collected}
	r.answerKey = p.l.answerKey(r.id)
	p.mu.collected = nil
	return r
}

// finish leaves what is to be removed to the next pop.
func (p *Popper) finish(r *request, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.mu.collected = append(p.mu.collected, r.answerKey)
		return
	}
	p.mu.collected = append(p.mu.collected, r.removes...)
}

// errContended says that a pop must register.
var errContended = errors.New("fdbpq: contended")

// fast tries once to pop without registering.
func (p *Popper) fast(ctx context.Context, r *request) (Item, error) {
	var result Result
	err := once(ctx, p.db, func(tx kv.Transaction) error {
		waiting, err := tx.Snapshot().GetRange(p.l.requestRange(), kv.RangeOptions{Limit: 1}).Get()
		if err != nil {
			return err
		}
		if len(waiting) > 0 {
			return errContended
		}
		results, wrote, err := apply(tx, []Op{{Kind: r.kind, Queue: p.q}}, time.Now())
		if err != nil {
			return err
		}
		result = results[0]
		if wrote {
			r.collect(tx, result.Item)
		}
		return nil
	})
	if kv.Retryable(err) || kv.MaybeCommitted(err) {
		return Item{}, errContended
	}
	if err == nil {
		err = result.Err
	}
	return result.Item, err
}

// wait registers the request and returns its answer.
func (p *Popper) wait(ctx context.Context, r *request) (Item, error) {
	pause := minLook
	for {
		item, done, err := p.look(ctx, r)
		if done {
			return item, err
		}
		if err == nil && r.shouldServe(time.Now()) {
			err = p.serve(ctx)
			pause = minLook
		} else {
			sleep(ctx, pause/2+rand.N(pause))
			pause = min(2*pause, maxLook)
		}
		if ctx.Err() != nil {
			return Item{}, p.withdraw(ctx, r)
		}
		if err != nil && !kv.Retryable(err) && !kv.MaybeCommitted(err) {
			return Item{}, errors.Join(err, p.withdraw(ctx, r))
		}
	}
}

// look collects the answer to the request if it is there. If it is not, it
// makes sure that the request is registered, and notes who is first in line.
func (p *Popper) look(ctx context.Context, r *request) (item Item, done bool, err error) {
	var a *answer
	err = once(ctx, p.db, func(tx kv.Transaction) (err error) {
		line := tx.Snapshot().GetRange(p.l.requestRange(), kv.RangeOptions{Limit: 1})
		if a, err = p.readAnswer(tx, r); err != nil || a != nil {
			return err
		}
		first, err := line.Get()
		if err != nil {
			return err
		}
		r.see(first, time.Now())
		return p.register(tx, r)
	})
	if err != nil || a == nil {
		return Item{}, false, err
	}
	item, err = a.outcome(r)
	return item, true, err
}

// register writes the request down unless it is there.
func (p *Popper) register(tx kv.Transaction, r *request) error {
	if r.key != nil {
		value, err := tx.Get(r.key).Get()
		if err != nil || value != nil {
			return err
		}
	}
	last, err := tx.Snapshot().GetRange(p.l.requestRange(), kv.RangeOptions{Limit: 1, Reverse: true}).Get()
	if err != nil {
		return err
	}
	count := int64(0)
	if len(last) > 0 {
		previous, err := p.l.parseRequest(last[0])
		if err != nil {
			return err
		}
		count = following(previous.count)
	}
	// Whatever was tried before and ended without an answer must not be
	// committed any more: see staging.go.
	tx.AddWriteConflict(kv.SingleKey(r.answerKey))
	r.key = p.l.requestKey(count, r.id)
	tx.Set(r.key, r.encode(time.Now().Add(requestLife)))
	return nil
}

// withdraw takes back a request that nobody waits for any more: an item that
// was given to it goes back to its place.
func (p *Popper) withdraw(ended context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), withdrawTime)
	defer cancel()
	_, err := kv.TransactIdempotent(ctx, p.db, func(tx kv.Transaction) (struct{}, error) {
		value, err := tx.Get(r.answerKey).Get()
		if err != nil {
			return struct{}{}, err
		}
		if r.key != nil {
			tx.Clear(r.key)
		}
		tx.Clear(r.answerKey)
		return struct{}{}, p.l.putAnswerBack(tx, value, r)
	})
	if err != nil {
		err = fmt.Errorf("%w: the pop could not be withdrawn and was left to expire: %w", kv.ErrCommitUnknown, err)
	}
	return errors.Join(ended.Err(), err)
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
