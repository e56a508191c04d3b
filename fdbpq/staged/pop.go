package staged

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// PopMin removes and returns the first item, as PriorityQueue.PopMin and Queue.Dequeue do.
//
// Errors: ErrEmpty, ErrCorrupt, errors of the store, and the context's error. When the context ends
// or the store fails, PopMin withdraws its request, which takes up to two seconds. If that fails
// too, the error wraps kv.ErrCommitUnknown, and the pop may have taken an item: see Settle.
func (p *Popper) PopMin(ctx context.Context) (fdbpq.Item, error) { return p.pop(ctx, fdbpq.Front) }

// PopMax removes and returns the last item, as PriorityQueue.PopMax does. For a FIFO queue it
// returns ErrOp. Otherwise it is like PopMin.
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

	// The next pop removes the claim of this one, or the claims that this one has not removed.
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

// errMayNotSkip ends a transaction that has found a line and may not skip it.
var errMayNotSkip = errors.New("fdbpq: there is a line")

// popDirectly takes an item. Meanwhile it looks for a line, and returns errMayNotSkip if there is
// one that it may not skip.
func (p *Popper) popDirectly(ctx context.Context, r *request) (*fdbpq.Result, error) {
	result, err := p.once(ctx, func(tx kv.Transaction) (*fdbpq.Result, error) {
		line := tx.Snapshot().GetRange(p.l.RequestRange(), kv.RangeOptions{Limit: maxSkipped + 1})
		now, pop := p.now(), fdbpq.Op{Kind: fdbpq.OpPop, End: r.end, Queue: p.q}
		results, err := fdbpq.Apply(tx, []fdbpq.Op{pop}, now)
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

	// Something was due, and left no room for the pop. The next attempt goes on from there.
	if err == nil && errors.Is(result.Err, fdbpq.ErrNoRoom) {
		return p.popDirectly(ctx, r)
	}
	return result, err
}

// awaitAnswer checks for the answer to the request until there is one. err is the error of
// tryAtOnce.
func (p *Popper) awaitAnswer(ctx context.Context, r *request, err error) (*fdbpq.Result, error) {
	began := p.now()
	expected := p.standing.expectedWait()
	waited := time.Duration(0)
	r.patience += 2 * expected // because it checks only so often
	var backoff kv.Backoff

	var result *fdbpq.Result
	for result == nil {
		// After a conflict check at once: another transaction has changed the request.
		lost := errors.Is(err, kv.ErrConflict)
		switch {
		case ctx.Err() != nil:
			return nil, p.withdraw(ctx, r, ctx.Err())
		case err != nil && !kv.Retryable(err) && !kv.MaybeCommitted(err):
			return nil, p.withdraw(ctx, r, err)
		case err != nil && !lost:
			if err = backoff.Wait(ctx); err != nil {
				continue
			}
		case !lost && r.key != nil:
			pause := r.pause(waited, expected)
			waited += pause
			select {
			case <-ctx.Done():
			case <-time.After(pause*3/4 + rand.N(pause/2)):
			}
		}

		start := time.Now()
		result, err = p.checkAnswer(ctx, r)
		r.slowest = max(r.slowest, time.Since(start))
	}

	p.standing.answered(p.now().Sub(began), !r.collected)
	return result, nil
}

// checkAnswer collects the answer to the request if there is one. Otherwise it makes sure that the
// request is registered, and serves the line if that is up to this request. Without an answer it
// returns nil.
func (p *Popper) checkAnswer(ctx context.Context, r *request) (*fdbpq.Result, error) {
	return p.once(ctx, func(tx kv.Transaction) (*fdbpq.Result, error) {
		answer, look := tx.Get(r.answerKey), r.beginLook(tx)
		registered := kv.Ready[[]byte](nil, nil)
		if r.key != nil {
			registered = tx.Get(r.key)
		}

		// An attempt of unknown outcome may have taken an item.
		if len(r.claims) > 0 {
			taken, err := r.committedClaim(tx.Get(r.claimKey))
			if err != nil {
				return nil, err
			}
			if taken != nil {
				r.claimed = taken
				return &fdbpq.Result{Item: *taken.Item}, nil
			}
		}

		value, err := answer.Get()
		if err != nil {
			return nil, err
		}

		if r.collected = value != nil; r.collected {
			return r.collect(tx, value, p.now())
		}

		line, claims, err := look()
		if err != nil {
			return nil, err
		}

		if value, err = registered.Get(); err != nil {
			return nil, err
		}

		if value == nil { // its place in line may have expired
			return nil, r.register(tx, line, claims, p.now())
		}

		r.see(line, claims, p.now())
		if !r.shouldServe(p.now()) {
			return nil, nil
		}

		r.first = ""
		return serve(tx, r, false, p.now())
	})
}

// collect takes the item of an answer to r.
func (r *request) collect(tx kv.Transaction, encoded []byte, now time.Time) (*fdbpq.Result, error) {
	a, err := codec.ParseAnswer(encoded)
	if err != nil {
		return nil, err
	}

	r.fence(tx)
	state.ClearUntil(r.l, tx, a.Deadline, r.answerKey)
	if a.Item == nil {
		return &fdbpq.Result{Err: fdbpq.ErrEmpty}, nil
	}

	// All reads take one round trip.
	g := state.NewLedger(tx, r.l, now, nil)
	g.BeginSettings() // for MaxBytes
	read, history := tx.Get(r.valueKey), state.ReadHistory(r.l, tx, a.Item)
	s := state.BeginItem(r.l, tx, a.Item, 0)
	value, err := read.Get()
	if err != nil {
		return nil, err
	}

	if err := s.Load(tx, r.l, value, false); codec.UnlessCorrupt(err) != nil {
		return nil, err
	}

	// An item that cannot be read goes back, as if nobody had given it.
	tx.Clear(r.valueKey)
	if s.Err != nil {
		g.Attach(a.Item, value)
		return &fdbpq.Result{Err: s.Err}, g.Flush()
	}

	result, err := r.take(&g, &s, history)
	if err != nil {
		return nil, err
	}
	return result, g.Flush()
}

// Settle withdraws the pops that ended with kv.ErrCommitUnknown. If one of them has taken an item,
// Settle returns the item to its old place, because nobody received it. Items that are not settled
// within an hour are lost.
//
// Each pop settles before anything else. So call Settle only to have items back before the next
// pop. It does nothing if there is nothing to settle.
//
// Errors: whatever the store or the context returns.
func (p *Popper) Settle(ctx context.Context) error {
	for {
		p.mu.Lock()
		n := len(p.mu.unsettled)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}

		r := p.mu.unsettled[n-1]
		p.mu.unsettled = p.mu.unsettled[:n-1]
		p.mu.Unlock()

		if err := p.erase(ctx, r); err != nil {
			return err
		}
	}
}

// withdraw withdraws a request that ended with err, and returns err.
func (p *Popper) withdraw(ended context.Context, r *request, err error) error {
	if r.key == nil && len(r.claims) == 0 { // nothing can have been written
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), withdrawTime)
	defer cancel()
	if failed := p.erase(ctx, r); failed != nil {
		return fmt.Errorf("%w: %w: cannot withdraw the pop: %w", kv.ErrCommitUnknown, err, failed)
	}
	return err
}

// erase removes all traces of a request. If the request was given an item, or has taken one, the
// item returns to its old place. If erase fails, it leaves the request to Settle.
func (p *Popper) erase(ctx context.Context, r *request) error {
	err := kv.UpdateIdempotent(ctx, state.Shrinking{Database: p.db}, func(tx kv.Transaction) error {
		readAnswer, readClaim := tx.Get(r.answerKey), tx.Get(r.claimKey)
		encoded, err := readAnswer.Get()
		if err != nil {
			return err
		}

		taken, err := r.committedClaim(readClaim)
		if err != nil {
			return err
		}

		g := state.NewLedger(tx, p.l, p.now(), nil)
		if taken != nil {
			if err := g.Restore(taken.Item); err != nil {
				return err
			}
			state.ClearUntil(p.l, tx, taken.marker.deadline, r.claimKey)
		}

		if encoded != nil {
			if err := r.returnAnswer(&g, encoded); err != nil {
				return err
			}
		}

		if err := g.Flush(); err != nil {
			return err
		}

		// Even keys that are not there: attempts that are on their way conflict with this.
		if r.key != nil {
			tx.Clear(r.key)
		}

		tx.Clear(r.answerKey)
		tx.Clear(r.valueKey)
		tx.Clear(r.claimKey)
		return nil
	})

	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.unsettled = append(p.mu.unsettled, r)
	}

	return err
}

// returnAnswer returns the item of an answer that was not collected, if it has one.
func (r *request) returnAnswer(g *state.Ledger, encoded []byte) error {
	a, err := codec.ParseAnswer(encoded)
	if err != nil {
		return err
	}

	state.ClearUntil(r.l, g.Tx, a.Deadline, r.answerKey)
	if a.Item == nil {
		return nil
	}

	read, back := g.Tx.Get(r.valueKey), g.BeginReturn(a.Item)
	value, err := read.Get()
	if err != nil {
		return err
	}
	return g.ReturnStaged(back, value)
}
