package staged

import (
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Settle withdraws the pops that ended with kv.ErrCommitUnknown. If one of them has taken an item,
// Settle returns it to its old place, since nobody received it. Pops settle before they do anything
// else, so call Settle only to have items back before the next pop. Items that are not settled
// within an hour are lost. Settle does nothing if there is nothing to settle.
//
// Errors: those of the store, and the context's error.
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

// erase removes all traces of a request, or leaves it to Settle. If it was given an item, or has
// taken one, the item returns to its old place.
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

		// Also what is not there, so that no attempt on its way commits later.
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

// returnAnswer returns the item of an answer that is not collected, if it has one.
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
