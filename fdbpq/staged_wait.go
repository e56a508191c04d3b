package fdbpq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// awaitAnswer checks for the answer to the request until there is one. err is the error of
// tryAtOnce.
func (p *Popper) awaitAnswer(ctx context.Context, r *request, err error) (result *Result, _ error) {
	began := p.now()
	expected := p.expectedWait()
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
			sleep(ctx, pause*3/4+rand.N(pause/2))
		}

		start := time.Now()
		result, err = p.checkAnswer(ctx, r)
		r.slowest = max(r.slowest, time.Since(start))
	}

	if !r.collected { // it has served the line itself
		p.lead()
	}
	p.noteWait(p.now().Sub(began))
	return result, nil
}

// expectedWait is about how long the answer will take.
func (p *Popper) expectedWait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(2*minPoll, p.mu.usualWait), maxPoll)
}

// noteWait records how long an answer took.
func (p *Popper) noteWait(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.usualWait = (p.mu.usualWait + d) / 2
}

// checkAnswer collects the answer to the request if there is one. Otherwise it makes sure
// that the request is registered, and serves the line if it is up to this request. Without an
// answer it returns nil.
func (p *Popper) checkAnswer(ctx context.Context, r *request) (result *Result, err error) {
	var s *serving
	err = once(ctx, p.db, func(tx kv.Transaction) error {
		answer, line, claims := tx.Get(r.answerKey), p.readLine(tx, r), p.lastClaim(tx)
		var registered kv.Future[[]byte]
		if r.key != nil {
			registered = tx.Get(r.key)
		}

		// An attempt of unknown outcome may have taken an item.
		if len(r.claims) > 0 {
			taken, err := r.committedClaim(tx.Get(r.claimKey))
			if err != nil {
				return err
			}
			if taken != nil {
				r.claimed = taken
				result = &Result{Item: *taken.Item}
				return nil
			}
		}

		value, err := answer.Get()
		if err != nil {
			return err
		}
		if r.collected = value != nil; r.collected {
			result, err = p.collect(tx, r, value)
			return err
		}

		// Without an answer, the place in line may have expired.
		if registered != nil {
			if value, err = registered.Get(); err != nil {
				return err
			}
		}
		if value == nil {
			return p.register(tx, r, line, claims)
		}

		if err := p.look(r, line, claims); err != nil || !r.shouldServe(p.now()) {
			return err
		}
		s = &serving{l: p.l, own: r}
		return p.serveIn(tx, s)
	})

	if s != nil {
		result, err = p.served(ctx, s, err)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// collect takes the item of an answer to r, in tx.
func (p *Popper) collect(tx kv.Transaction, r *request, encoded []byte) (*Result, error) {
	a, err := codec.ParseAnswer(encoded)
	if err != nil {
		return nil, err
	}

	r.fence(tx)
	state.ClearUntil(p.l, tx, a.Deadline, r.answerKey)
	if a.Item == nil {
		return &Result{Err: ErrEmpty}, nil
	}

	now := p.now()
	g := state.NewLedger(tx, p.l, now, nil)
	g.BeginSettings() // for MaxBytes
	read, history := tx.Get(r.valueKey), state.ReadHistory(p.l, tx, a.Item)
	s := state.BeginItem(p.l, tx, a.Item, 0)
	value, err := read.Get()
	if err != nil {
		return nil, err
	}
	if err := s.Load(tx, p.l, value, false); codec.UnlessCorrupt(err) != nil {
		return nil, err
	}

	// An item that cannot be read goes back, as if it had not been given.
	tx.Clear(r.valueKey)
	if s.Err != nil {
		g.Attach(a.Item, value)
		return &Result{Err: s.Err}, g.Flush()
	}

	past, err := history.Get()
	if err != nil {
		return nil, err
	}
	g.DeleteRest(&s)
	g.ClearHistory(&s.Item.ID, past)
	taken := s.Taken(p.l, past)
	r.claim(tx, taken, now)
	return &Result{Item: *taken.Item}, g.Flush()
}

// readLine starts to read the first request in line, or the last if r has no place yet.
func (p *Popper) readLine(tx kv.Transaction, r *request) kv.Future[[]kv.KeyValue] {
	return tx.Snapshot().GetRange(p.l.RequestRange(), kv.RangeOptions{Limit: 1, Reverse: r.key == nil})
}

// lastClaim starts to read the newest claim.
func (p *Popper) lastClaim(tx kv.Transaction) kv.Future[[]kv.KeyValue] {
	return tx.Snapshot().GetRange(codec.Within(p.l.PartPrefix(codec.PartClaim)), kv.RangeOptions{Limit: 1, Reverse: true})
}

// look records who is first in line, and whether another Popper takes items.
func (p *Popper) look(r *request, line, claims kv.Future[[]kv.KeyValue]) error {
	first, err := line.Get()
	if err != nil {
		return err
	}
	last, err := claims.Get()
	if err != nil {
		return err
	}
	r.see(first, last, p.now())
	return nil
}

// joinLine registers a request.
func (p *Popper) joinLine(tx kv.Transaction, r *request) error {
	return p.register(tx, r, p.readLine(tx, r), p.lastClaim(tx))
}

// register puts the request in line: at its old place, because an earlier attempt may still commit,
// or after the last request if it has none. inLine is what readLine returned.
func (p *Popper) register(tx kv.Transaction, r *request, inLine, claims kv.Future[[]kv.KeyValue]) error {
	line, err := inLine.Get()
	if err != nil {
		return err
	}
	last, err := claims.Get()
	if err != nil {
		return err
	}

	if r.key == nil {
		count := int64(0)
		if len(line) > 0 {
			last, err := p.l.ParseRequest(line[0])
			if err != nil {
				return err
			}
			count = codec.Following(last.Count)
		}
		r.key = p.l.RequestKey(count, r.id)
	}

	r.fence(tx)
	tx.Set(r.key, codec.EncodeRequest(r.end, p.now().Add(RequestLife)))
	r.first, r.soonFirst = "", len(line) == 0
	r.seeClaim(last)
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
