package fdbpq

import (
	"context"
	"time"

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

// served returns the result of the Popper's own request, if that was among those that a transaction has
// served. err is the error of the transaction. After one that is retryable, or leaves the outcome
// unknown, the Popper checks for its answer again.
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
			d, err := returnDue(tx, p.l, p.now())
			more = err == nil && !d.returned && d.behind()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// serveCount is how many requests to serve so that their values are not much over
// serveBytes.
func (p *Popper) serveCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(serveLimit, max(1, serveBytes/max(1, p.mu.size)))
}

// serving answers the requests in line in one transaction.
type serving struct {
	tx     kv.Transaction
	l      *layout
	now    time.Time
	own    *request
	joins  bool    // own is not in line, and comes after those who are
	result *Result // of own
	line   []*lineEntry

	items  ends
	behind bool                     // there are no items, but more is due than this transaction brings back
	past   kv.Future[[]kv.KeyValue] // the first history of an item, if there is any

	served, bytes int // how many got an item, and the size of their values
}

// readLine reads the first requests in line, and removes those that have expired.
func (s *serving) readLine(limit int) error {
	pairs, err := s.tx.Snapshot().GetRange(s.l.requestRange(), kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		w, err := s.l.parseRequest(pair)
		if err != nil {
			return err
		}
		if w.deadline.Before(s.now) {
			s.dequeue(w)
		} else {
			s.line = append(s.line, w)
		}
	}
	if s.joins {
		s.line = append(s.line, &lineEntry{end: s.own.end, id: s.own.id})
	}
	return nil
}

func (s *serving) dequeue(w *lineEntry) {
	if w.key == nil { // it joins
		return
	}
	s.tx.AddReadConflict(kv.SingleKey(w.key))
	s.tx.Clear(w.key)
}

// serveLine gives items to the requests in order, until it runs out of either; the rest of
// the line waits for the next serving. Only if there is no item at all does it say "empty",
// because that conflicts with every push, and only if nothing more is due.
func (s *serving) serveLine() error {
	g := ledger{tx: s.tx, l: s.l, now: s.now}
	g.beginSettings()
	if err := s.findItems(); err != nil {
		return err
	}
	limits, err := g.limits()
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
		s.tx.AddReadConflict(s.l.itemRange())
		for _, w := range s.line {
			s.sayEmpty(w, ErrEmpty)
		}
		return nil
	}
	for _, w := range s.line {
		item, err := s.items.next(w.end)
		if err != nil {
			return err
		}
		if item == nil || s.bytes > serveBytes {
			break
		}
		if err := s.give(w, item, &g); err != nil {
			return err
		}
	}
	return g.flush()
}

// findItems reads the items. If there are none, it first brings back what is due.
func (s *serving) findItems() error {
	if err := s.readItems(); err != nil || !s.isEmpty() {
		return err
	}
	d, err := returnDue(s.tx, s.l, s.now)
	if err != nil || !d.returned {
		s.behind = err == nil && d.behind()
		return err
	}
	return s.readItems()
}

// readItems reads as many items from each end as the line wants. It reads without conflict:
// giving an item conflicts with whoever takes the same one.
func (s *serving) readItems() error {
	var want [2]int
	for _, w := range s.line {
		want[w.end]++
	}
	s.past = (&ledger{tx: s.tx, l: s.l}).firstHistory()
	s.items = s.l.walkEnds(s.tx.Snapshot(), want, MaxMessageSize, 0)
	return s.items.arrive()
}

func (s *serving) isEmpty() bool {
	return len(s.items.walks[Front].items)+len(s.items.walks[Back].items) == 0
}

// sayEmpty answers a request that there is no item. Only the Popper's own request learns why.
func (s *serving) sayEmpty(w *lineEntry, why error) {
	s.dequeue(w)
	if w.id == s.own.id {
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
	return s.l.readHistory(s.tx, id).Get()
}

// give gives an item to a request. The Popper takes the item of its own request at once.
func (s *serving) give(w *lineEntry, item *stored, g *ledger) error {
	if item.err != nil {
		return item.err
	}
	s.items.noteTaken(w.end, item)
	s.tx.AddReadConflict(kv.SingleKey(item.pair.Key))
	s.dequeue(w)
	g.lend(item)
	s.served++
	s.bytes += len(item.pair.Value)
	if w.id == s.own.id {
		item.beginRead(s.tx, s.l, 0)
		past, err := s.history(&item.item.ID)
		if err != nil {
			return err
		}
		if err := item.finishRead(); err != nil {
			return err
		}
		if item.err == nil {
			g.removeRest(item)
			g.forget(&item.item.ID, past)
			taken := item.taken(s.l, past)
			s.own.claim(s.tx, taken, s.now)
			s.result = &Result{Item: *taken.Item}
			return nil
		}
	}
	s.answer(w, &item.item.ID)
	s.tx.Set(s.l.partKey(partValue, w.id), item.pair.Value)
	return nil
}

// answer writes the answer to a request.
func (s *serving) answer(w *lineEntry, item *ID) {
	a := answer{deadline: s.now.Add(answerLife), item: item}
	s.l.setUntil(s.tx, a.deadline, s.l.partKey(partAnswer, w.id), a.encode())
}
