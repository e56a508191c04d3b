package fdbpq

import (
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Settle withdraws the pops that ended with kv.ErrCommitUnknown: an item that
// one of them may have taken goes back to its old place, since nobody was given
// it. Pops settle before they begin; call Settle to have items back without
// waiting for the next pop. What is not settled within an hour is lost. It does
// nothing when there is nothing to settle.
//
// Errors: those of the store, and the context's error.
func (p *Popper) Settle(ctx context.Context) error {
	for {
		r := p.takeUnsettled()
		if r == nil {
			return nil
		}
		if err := p.clear(ctx, r); err != nil {
			p.leave(r)
			return err
		}
	}
}

func (p *Popper) takeUnsettled() *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.unsettled)
	if n == 0 {
		return nil
	}
	r := p.mu.unsettled[n-1]
	p.mu.unsettled = p.mu.unsettled[:n-1]
	return r
}

// leave leaves a request to Settle.
func (p *Popper) leave(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.unsettled = append(p.mu.unsettled, r)
}

// withdraw takes back a request that nobody waits for any more, because of err.
func (p *Popper) withdraw(ended context.Context, r *request, err error) error {
	if !r.attempted() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), withdrawTime)
	defer cancel()
	if failed := p.clear(ctx, r); failed != nil {
		p.leave(r)
		return fmt.Errorf("%w: %w: the pop could not be withdrawn: %w", kv.ErrCommitUnknown, err, failed)
	}
	return err
}

// clear removes all that there is of a request. An item that it was given or
// has taken goes back to its place.
func (p *Popper) clear(ctx context.Context, r *request) error {
	return kv.UpdateIdempotent(ctx, p.db, func(tx kv.Transaction) error {
		answered, marked := tx.Get(r.answerKey), tx.Get(r.claimKey)
		encoded, err := answered.Get()
		if err != nil {
			return err
		}
		taken, err := r.committedClaim(marked)
		if err != nil {
			return err
		}
		g := ledger{tx: tx, l: p.l, now: p.now()}
		if taken != nil {
			g.restore(taken.stored)
			p.l.clearUntil(tx, taken.marker.deadline, r.claimKey)
		}
		if encoded != nil {
			a, err := parseAnswer(encoded)
			if err != nil {
				return err
			}
			value, err := tx.Get(r.valueKey).Get()
			if err != nil {
				return err
			}
			if a.item != nil {
				g.giveBack(a.item, value)
			}
			p.l.clearUntil(tx, a.deadline, r.answerKey)
		}
		g.flush()
		if r.key != nil {
			tx.Clear(r.key)
		}
		tx.Clear(r.answerKey)
		tx.Clear(r.valueKey)
		tx.Clear(r.claimKey)
		return nil
	})
}
