package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// serve answers the requests in line, and then own, which is not in line.
func (p *Popper) serve(ctx context.Context, own *request) (*Result, error) {
	s := serving{l: p.l, own: own, joins: true}
	err := once(ctx, p.db, func(tx kv.Transaction) error { return p.serveIn(tx, &s) })
	return p.served(ctx, &s, err)
}

// serveIn answers the requests in line in tx.
func (p *Popper) serveIn(tx kv.Transaction, s *serving) error {
	s.tx, s.now = tx, p.now()
	if err := s.readLine(p.serveCount()); err != nil || len(s.line) == 0 {
		return err
	}
	if err := p.sweepIfDue(tx, s.now); err != nil {
		return err
	}
	return s.serveLine()
}

// served returns the result of the Popper's own request, if that was among those that a transaction
// has served. err is the error of the transaction. After one that is retryable, or leaves the
// outcome unknown, the Popper checks for its answer again.
func (p *Popper) served(ctx context.Context, s *serving, err error) (*Result, error) {
	s.own.first = "" // unknown now
	if err == nil && s.behind {
		err = p.returnMore(ctx)
	}
	if err != nil {
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.line = 0
	if s.served > 0 {
		p.mu.size = s.bytes / s.served
	}
	return s.result, nil
}

// returnMore handles what is due until something comes back, or nothing more is due.
func (p *Popper) returnMore(ctx context.Context) error {
	for more := true; more; {
		err := once(ctx, p.db, func(tx kv.Transaction) error {
			d, err := due.ReturnDue(tx, p.l, p.now())
			more = err == nil && !d.Returned && d.Behind()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// serveCount is how many requests to serve so that their values are not much over
// ServeBytes.
func (p *Popper) serveCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(ServeLimit, max(1, ServeBytes/max(1, p.mu.size)))
}

// serving answers the requests in line in one transaction.
type serving struct {
	tx     kv.Transaction
	l      *codec.Layout
	now    time.Time
	own    *request
	joins  bool    // own is not in line, and comes after those who are
	result *Result // of own
	line   []*codec.LineEntry

	items  state.Ends
	behind bool                     // there are no items, but more is due than this transaction brings back
	past   kv.Future[[]kv.KeyValue] // the first history of an item, if there is any

	served, bytes int // how many got an item, and the size of their values
}

// readLine reads the first requests in line, and removes those that have expired.
func (s *serving) readLine(limit int) error {
	pairs, err := s.tx.Snapshot().GetRange(s.l.RequestRange(), kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return err
	}

	for _, pair := range pairs {
		w, err := s.l.ParseRequest(pair)
		if err != nil {
			return err
		}
		if w.Deadline.Before(s.now) {
			s.dequeue(w)
		} else {
			s.line = append(s.line, w)
		}
	}

	if s.joins {
		s.line = append(s.line, &codec.LineEntry{End: s.own.end, ID: s.own.id})
	}
	return nil
}

func (s *serving) dequeue(w *codec.LineEntry) {
	if w.Key == nil { // it joins
		return
	}
	s.tx.AddReadConflict(kv.SingleKey(w.Key))
	s.tx.Clear(w.Key)
}

// serveLine gives items to the requests in order, until it runs out of either; the rest of
// the line waits for the next serving. Only if there is no item at all does it say "empty",
// because that conflicts with every push, and only if nothing more is due.
func (s *serving) serveLine() error {
	g := state.NewLedger(s.tx, s.l, s.now, nil)
	g.BeginSettings()
	if err := s.findItems(); err != nil {
		return err
	}

	limits, err := g.Limits()
	if err != nil {
		return err
	}
	if paused := pauseAt(limits, s.now); paused != nil {
		for _, w := range s.line {
			s.sayEmpty(w, paused)
		}
		return nil
	}

	if s.behind {
		return nil
	}
	if s.isEmpty() {
		s.tx.AddReadConflict(s.l.ItemRange())
		for _, w := range s.line {
			s.sayEmpty(w, ErrEmpty)
		}
		return nil
	}

	for _, w := range s.line {
		item, err := s.items.Next(w.End)
		if err != nil {
			return err
		}
		if item == nil || s.bytes > ServeBytes {
			break
		}
		if err := s.give(w, item, &g); err != nil {
			return err
		}
	}
	return g.Flush()
}

// findItems reads the items. If there are none, it first brings back what is due.
func (s *serving) findItems() error {
	if err := s.readItems(); err != nil || !s.isEmpty() {
		return err
	}
	d, err := due.ReturnDue(s.tx, s.l, s.now)
	if err != nil || !d.Returned {
		s.behind = err == nil && d.Behind()
		return err
	}
	return s.readItems()
}

// readItems reads as many items from each end as the line wants. It reads without conflict:
// giving an item conflicts with whoever takes the same one.
func (s *serving) readItems() error {
	var want [2]int
	for _, w := range s.line {
		want[w.End]++
	}
	g := state.NewLedger(s.tx, s.l, s.now, nil)
	s.past = g.FirstHistory()
	s.items = state.WalkEnds(s.l, s.tx.Snapshot(), want, MaxMessageSize, 0)
	return s.items.Arrive()
}

func (s *serving) isEmpty() bool { return s.items.Empty() }

// sayEmpty answers a request that there is no item. Only the Popper's own request learns why.
func (s *serving) sayEmpty(w *codec.LineEntry, why error) {
	s.dequeue(w)
	if w.ID == s.own.id {
		s.own.fence(s.tx)
		s.result = &Result{Err: why}
		return
	}
	s.answer(w, nil)
}

// history returns the history of an item as stored, nil if it has none.
func (s *serving) history(id *ID) ([]byte, error) {
	pasts, err := s.past.Get()
	if err != nil || len(pasts) == 0 {
		return nil, err
	}
	return state.ReadHistory(s.l, s.tx, id).Get()
}

// give gives an item to a request. The Popper takes the item of its own request at once.
func (s *serving) give(w *codec.LineEntry, item *state.Stored, g *state.Ledger) error {
	if item.Err != nil {
		return item.Err
	}

	s.items.NoteTaken(w.End, item)
	s.tx.AddReadConflict(kv.SingleKey(item.Pair.Key))
	s.dequeue(w)
	g.Detach(item)
	s.served++
	s.bytes += len(item.Pair.Value)

	if w.ID == s.own.id {
		item.BeginRead(s.tx, s.l, 0)
		past, err := s.history(&item.Item.ID)
		if err != nil {
			return err
		}
		if err := item.FinishRead(); err != nil {
			return err
		}
		if item.Err == nil {
			g.DeleteRest(item)
			g.ClearHistory(&item.Item.ID, past)
			taken := item.Taken(s.l, past)
			s.own.claim(s.tx, taken, s.now)
			s.result = &Result{Item: *taken.Item}
			return nil
		}
	}

	s.answer(w, &item.Item.ID)
	s.tx.Set(s.l.PartKey(codec.PartValue, w.ID), item.Pair.Value)
	return nil
}

// answer writes the answer to a request.
func (s *serving) answer(w *codec.LineEntry, item *ID) {
	a := codec.Answer{Deadline: s.now.Add(AnswerLife), Item: item}
	state.SetUntil(s.l, s.tx, a.Deadline, s.l.PartKey(codec.PartAnswer, w.ID), a.Encode())
}
