package staged

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// PopMin removes and returns the first item, as PriorityQueue.PopMin and Queue.Dequeue do.
//
// Errors: ErrEmpty, ErrCorrupt, errors of the store, and the context's error. When the context ends
// or the store fails, PopMin withdraws its request, which takes up to two seconds. If that fails,
// the error wraps kv.ErrCommitUnknown: see Settle.
func (p *Popper) PopMin(ctx context.Context) (fdbpq.Item, error) { return p.pop(ctx, fdbpq.Front) }

// PopMax removes and returns the last item, as PriorityQueue.PopMax does. For a Queue it returns
// ErrOp. Otherwise it is like PopMin.
func (p *Popper) PopMax(ctx context.Context) (fdbpq.Item, error) { return p.pop(ctx, fdbpq.Back) }

func (p *Popper) pop(ctx context.Context, end fdbpq.End) (fdbpq.Item, error) {
	if p.l.Fifo && end == fdbpq.Back {
		return fdbpq.Item{}, codec.ErrFIFOEnd
	}
	if err := p.Settle(ctx); err != nil {
		return fdbpq.Item{}, err
	}

	r := newRequest(p.l, end, p.now())
	p.mu.Lock()
	r.oldClaims, p.mu.oldClaims = p.mu.oldClaims, nil
	p.mu.Unlock()

	began := time.Now()
	result, err := p.tryAtOnce(ctx, r)
	if result == nil {
		r.slowest = time.Since(began)
		result, err = p.awaitAnswer(ctx, r, err)
	}
	if err != nil {
		result = &fdbpq.Result{Err: err}
	}

	// The next pop removes the claim of this one, or those that this one has not removed.
	p.mu.Lock()
	defer p.mu.Unlock()
	if result.Err == nil {
		p.mu.oldClaims = append(p.mu.oldClaims, r.claimed.marker)
	} else {
		p.mu.oldClaims = append(p.mu.oldClaims, r.oldClaims...)
	}
	return result.Item, result.Err
}

// tryAtOnce makes one attempt to pop without waiting for others, or registers the request: see
// standing. It returns nil if the pop has to wait for its answer.
func (p *Popper) tryAtOnce(ctx context.Context, r *request) (result *fdbpq.Result, err error) {
	course := p.standing.chooseCourse()
	switch course {
	case popDirectly:
		result, err = p.popDirectly(ctx, r)
	case serveLine:
		result, err = p.once(ctx, func(tx kv.Transaction) (*fdbpq.Result, error) {
			return serve(tx, r, true, p.now())
		})
	}

	if course != standInLine {
		p.standing.ledTo(result != nil)
	}
	if course == standInLine || errors.Is(err, errMayNotSkip) {
		_, err = p.once(ctx, func(tx kv.Transaction) (*fdbpq.Result, error) {
			line, claims, err := r.beginLook(tx)()
			if err != nil {
				return nil, err
			}
			return nil, r.register(tx, line, claims, p.now())
		})
	}
	return result, err
}

// errMayNotSkip ends a transaction that has found a line which it may not skip.
var errMayNotSkip = errors.New("fdbpq: there is a line")

// popDirectly takes an item. Meanwhile it looks for a line, and returns errMayNotSkip if it may not
// skip it.
func (p *Popper) popDirectly(ctx context.Context, r *request) (*fdbpq.Result, error) {
	result, err := p.once(ctx, func(tx kv.Transaction) (*fdbpq.Result, error) {
		line := tx.Snapshot().GetRange(p.l.RequestRange(), kv.RangeOptions{Limit: maxSkipped + 1})
		now := p.now()
		results, err := fdbpq.Apply(tx, []fdbpq.Op{{Kind: fdbpq.OpPop, End: r.end, Queue: p.q}}, now)
		if err != nil {
			return nil, err
		}

		requests, err := line.Get()
		if err != nil {
			return nil, err
		}
		if !p.standing.maySkip(len(requests)) {
			return nil, errMayNotSkip
		}

		if results[0].Err == nil {
			r.claim(tx, &results[0].Item, now)
		}
		return &results[0], nil
	})

	if err == nil && errors.Is(result.Err, fdbpq.ErrNoRoom) { // it has made some for the next
		return p.popDirectly(ctx, r)
	}
	return result, err
}
