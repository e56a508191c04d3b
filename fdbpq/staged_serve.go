package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// serve answers the requests in line, and returns the result of own, the request
// of whoever serves, if it was among them. An error that is retryable or unknown
// means that somebody else was at it, or that it must be looked at again.
func (p *Popper) serve(ctx context.Context, own *request) (*Result, error) {
	s := serving{l: p.l, own: own}
	err := once(ctx, p.db, func(tx kv.Transaction) error {
		s.tx, s.now = tx, p.now()
		if err := s.readLine(p.serveCount()); err != nil || len(s.line) == 0 {
			return err
		}
		if err := p.sweepIfDue(tx, s.now); err != nil {
			return err
		}
		return s.serveLine()
	})
	own.first = "" // whoever it is now
	if err != nil {
		return nil, err
	}
	if len(s.line) == 1 {
		p.setContended(false)
	}
	if s.served > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.size = s.bytes / s.served
	}
	return s.result, nil
}

// serveCount is how many requests to serve, so that the values, which are read
// to that number, are not much over serveBytes.
func (p *Popper) serveCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(serveLimit, max(1, serveBytes/max(1, p.mu.size)))
}

// serving is the requests in line being answered, in one transaction.
type serving struct {
	tx     kv.Transaction
	l      *layout
	now    time.Time
	own    *request
	result *Result // of own
	line   []*lineEntry

	items ends

	served, bytes int // number and size of the values given
}

// readLine reads the first requests in line and removes those that expired.
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
			s.remove(w)
		} else {
			s.line = append(s.line, w)
		}
	}
	return nil
}

func (s *serving) remove(w *lineEntry) {
	s.tx.AddReadConflict(kv.SingleKey(w.key))
	s.tx.Clear(w.key)
}

// serveLine gives items to the requests in their order until either run out. The
// rest of the line waits for the next serving: to say "empty", nothing may be
// pushed meanwhile, so it is said only when there is no item to give.
func (s *serving) serveLine() error {
	if err := s.findItems(); err != nil {
		return err
	}
	if s.isEmpty() {
		s.tx.AddReadConflict(s.l.itemRange())
		for _, w := range s.line {
			s.sayEmpty(w)
		}
		return nil
	}
	g := ledger{tx: s.tx, l: s.l, now: s.now}
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
	g.flush()
	return nil
}

// findItems reads the items, after what is due has come back if there are none.
func (s *serving) findItems() error {
	if err := s.readItems(); err != nil || !s.isEmpty() {
		return err
	}
	returned, err := returnDue(s.tx, s.l, s.now)
	if err != nil || !returned {
		return err
	}
	return s.readItems()
}

// readItems reads as many items from each end as are wanted from there. It
// reads without conflict; what is given conflicts with what takes the same.
func (s *serving) readItems() error {
	var want [2]int
	for _, w := range s.line {
		want[w.end]++
	}
	s.items = s.l.walkEnds(s.tx.Snapshot(), want)
	return s.items.arrive()
}

func (s *serving) isEmpty() bool {
	return len(s.items.walks[Front].items)+len(s.items.walks[Back].items) == 0
}

func (s *serving) sayEmpty(w *lineEntry) {
	s.remove(w)
	if w.id == s.own.id {
		s.own.fence(s.tx)
		s.result = &Result{Err: ErrEmpty}
		return
	}
	s.reply(w, nil)
}

// give gives an item to a request. Whoever serves takes its own at once.
func (s *serving) give(w *lineEntry, item *stored, g *ledger) error {
	if item.err != nil {
		return item.err
	}
	s.items.noteTaken(w.end, item)
	s.tx.AddReadConflict(kv.SingleKey(item.pair.Key))
	s.remove(w)
	g.lend(item)
	s.served++
	s.bytes += len(item.pair.Value)
	if w.id == s.own.id {
		item.beginRead(s.tx, s.l)
		if err := item.finishRead(); err != nil {
			return err
		}
		if item.err == nil {
			g.settle(item)
			s.own.claim(s.tx, item, s.now)
			s.result = &Result{Item: item.item}
			return nil
		}
	}
	s.reply(w, &item.item.ID)
	s.tx.Set(s.l.partKey(partValue, w.id), item.pair.Value)
	return nil
}

// reply writes the answer to a request.
func (s *serving) reply(w *lineEntry, item *ID) {
	a := answer{deadline: s.now.Add(answerLife), item: item}
	s.l.setUntil(s.tx, a.deadline, s.l.partKey(partAnswer, w.id), a.encode())
}
