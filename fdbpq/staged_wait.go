package fdbpq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// awaitAnswer checks for the answer to the request until there is one. err is the error of
// tryAtOnce.
func (p *Popper) awaitAnswer(ctx context.Context, r *request, err error) (result *Result, _ error) {
	p.setContended(true)
	began := p.now()
	expected := p.expectedWait()
	pause := expected * 3 / 4
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
		case !lost && r.shouldServe(p.now()):
			if result, err = p.serve(ctx, r); result != nil || err != nil {
				continue
			}
		case !lost:
			if r.soonFirst {
				pause = minPoll
			}
			sleep(ctx, pause*3/4+rand.N(pause/2))
			pause = max(minPoll, expected/8)
		}
		result, err = p.checkAnswer(ctx, r)
	}
	p.noteWait(p.now().Sub(began))
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
// that the request is registered, records who is first in line, and returns nil.
func (p *Popper) checkAnswer(ctx context.Context, r *request) (result *Result, err error) {
	err = once(ctx, p.db, func(tx kv.Transaction) error {
		answer := tx.Get(r.answerKey)
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

// collect takes the item of an answer to r, in tx.
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
	now := p.now()
	g := ledger{tx: tx, l: p.l, now: now}
	g.beginSettings() // for MaxBytes
	read, metas, history := tx.Get(r.valueKey), p.l.readMetas(tx, a.item), p.l.readHistory(tx, a.item)
	value, err := read.Get()
	if err != nil {
		return nil, err
	}
	s := p.l.storedAs(*a.item, kv.KeyValue{Key: p.l.itemKey(a.item), Value: value})
	s.metas = metas
	if err := s.finishRead(); err != nil {
		return nil, err
	}
	tx.Clear(r.valueKey)
	if s.err != nil {
		g.giveBack(a.item, value)
		return &Result{Err: s.err}, g.flush()
	}
	past, err := history.Get()
	if err != nil {
		return nil, err
	}
	g.removeRest(&s)
	g.forget(&s.item.ID, past)
	taken := s.taken(p.l, past)
	r.claim(tx, taken, now)
	return &Result{Item: *taken.Item}, g.flush()
}

// stayInLine records who is first in line, and registers the request if it is not in line.
// A request that was registered before takes its old place again, because the earlier
// attempt may still commit.
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

// register puts the request in line: at its old place, or after the last request if it has
// none. line holds a request if the line is not empty: the last one if the request has no
// place yet.
func (p *Popper) register(tx kv.Transaction, r *request, line []kv.KeyValue) error {
	if r.key == nil {
		count := int64(0)
		if len(line) > 0 {
			last, err := p.l.parseRequest(line[0])
			if err != nil {
				return err
			}
			count = following(last.count)
		}
		r.key = p.l.requestKey(count, r.id)
	}
	r.fence(tx)
	tx.Set(r.key, encodeRequest(r.end, p.now().Add(requestLife)))
	r.first, r.soonFirst = "", len(line) == 0
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
