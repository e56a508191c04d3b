package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Exported for the tests of staged pops.

const (
	RequestLife = requestLife
	AnswerLife  = answerLife
	ClaimLife   = claimLife
	SweepEvery  = sweepEvery
	MaxPatience = maxPatience
	ServeLimit  = serveLimit
	ServeBytes  = serveBytes
	DuePage     = duePage
)

// SetNow gives p another clock.
func (p *Popper) SetNow(now func() time.Time) { p.now = now }

// Line registers a request of p in tx whose owner is gone.
func (p *Popper) Line(tx kv.Transaction, end End) error {
	last, err := p.lastInLine(tx).Get()
	if err != nil {
		return err
	}
	return p.register(tx, newRequest(p.l, end, p.now()), last)
}

// Serve answers the requests in line.
func (p *Popper) Serve(ctx context.Context) error {
	_, err := p.serve(ctx, newRequest(p.l, Front, p.now()))
	return err
}

// Staged is what the store holds of the staged pops of a queue.
type Staged struct {
	Requests, Answers, Values, Claims int
	Due                               int   // entries in the time index
	Ends                              []End // of the requests, in order
}

// Staged reads what the store holds of staged pops.
func (p *Popper) Staged(r kv.Reader) (Staged, error) {
	var s Staged
	for i, n := range []*int{&s.Requests, &s.Answers, &s.Values, &s.Claims, &s.Due} {
		span := p.l.requestRange()
		if i > 0 {
			span = within(p.l.partPrefix(int64(i - 1)))
		}
		if n == &s.Due {
			span = p.l.kindRange(kindDue)
		}
		pairs, err := r.GetRange(span, kv.RangeOptions{}).Get()
		if err != nil {
			return s, err
		}
		*n = len(pairs)
		if i > 0 {
			continue
		}
		for _, pair := range pairs {
			w, err := p.l.parseRequest(pair)
			if err != nil {
				return s, err
			}
			s.Ends = append(s.Ends, w.end)
		}
	}
	return s, nil
}
