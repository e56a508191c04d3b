package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Exported for the tests of staged pops.

// DuePage is how many entries of the time index a transaction handles.
const DuePage = due.DuePage

// SetNow gives p another clock.
func (p *Popper) SetNow(now func() time.Time) { p.now = now }

// SetRandom has p draw whether it skips a line from random.
func (p *Popper) SetRandom(random func(n int) int) { p.random = random }

// IsLeader and IsFollower report what p has learned.
func (p *Popper) IsLeader() bool   { return p.mu.standing.role == leader }
func (p *Popper) IsFollower() bool { return p.mu.standing.role == follower }

// Lead makes p a leader that has seen a line of n requests.
func (p *Popper) Lead(n int) { p.mu.standing = standing{role: leader, line: n} }

// Pop pops from the given end.
func (p *Popper) Pop(ctx context.Context, end End) (Item, error) { return p.pop(ctx, end) }

// PopAsBefore pops as versions without leaders do: it registers if there is a line, or if it has lost, and serves the
// line as soon as its request is the first.
func (p *Popper) PopAsBefore(ctx context.Context, end End) (Item, error) {
	if err := p.Settle(ctx); err != nil {
		return Item{}, err
	}
	p.mu.Lock()
	p.mu.standing = standing{}
	p.mu.Unlock()
	r := p.newRequest(end)
	result, err := p.tryAtOnce(ctx, r)
	if result == nil {
		r.patience = -1 // if it is not the first, it serves early
		result, err = p.awaitAnswer(ctx, r, err)
	}
	p.finish(r, err == nil && result.Err == nil)
	if err != nil {
		return Item{}, err
	}
	return result.Item, result.Err
}

// Line registers a request of p in tx whose owner is gone.
func (p *Popper) Line(tx kv.Transaction, end End) error {
	return p.joinLine(tx, newRequest(p.l, end, p.now()))
}

// Serve answers the requests in line.
func (p *Popper) Serve(ctx context.Context) error {
	s := serving{l: p.l, own: newRequest(p.l, Front, p.now())}
	err := once(ctx, p.db, func(tx kv.Transaction) error { return p.serveIn(tx, &s) })
	_, err = p.served(ctx, &s, err)
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
		span := p.l.RequestRange()
		if i > 0 {
			span = codec.Within(p.l.PartPrefix(int64(i - 1)))
		}
		if n == &s.Due {
			span = p.l.KindRange(codec.KindDue)
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
			w, err := p.l.ParseRequest(pair)
			if err != nil {
				return s, err
			}
			s.Ends = append(s.Ends, w.End)
		}
	}
	return s, nil
}
