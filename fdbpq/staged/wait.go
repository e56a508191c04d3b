package staged

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// awaitAnswer checks for the answer to the request until there is one. err is the error of
// tryAtOnce.
func (p *Popper) awaitAnswer(ctx context.Context, r *request, err error) (result *fdbpq.Result, _ error) {
	began := p.now()
	expected := p.standing.expectedWait()
	waited := time.Duration(0)
	r.patience += 2 * expected // because it checks only so often
	var backoff kv.Backoff

	for result == nil {
		lost := errors.Is(err, kv.ErrConflict) // so another transaction has changed the request
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
// request is registered, and serves the line if it is up to this request. Without an answer it
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

	// An item that cannot be read goes back, as if it had not been given.
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
