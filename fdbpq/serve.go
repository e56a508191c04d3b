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
		if p.mustSweep(s.now) {
			if _, err := sweepOne(tx, p.l, s.now); err != nil {
				return err
			}
		}
		return s.answer()
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
	line   []*waiter

	items [2][]kv.KeyValue    // found at either end and not given yet
	given map[string]struct{} // keys of items, which both ends may have found

	served, bytes int // number and size of the values given
}

// readLine reads the first requests in line and removes those that expired.
func (s *serving) readLine(limit int) error {
	pairs, err := s.tx.Snapshot().GetRange(s.l.requestRange(), kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		w, err := s.l.parseWaiter(pair)
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

func (s *serving) remove(w *waiter) {
	s.tx.AddReadConflict(kv.SingleKey(w.key))
	s.tx.Clear(w.key)
}

// answer gives items to the requests in their order until either run out. The
// rest of the line waits for the next serving: to say "empty", nothing may be
// pushed meanwhile, so it is said only when there is no item to give.
func (s *serving) answer() error {
	if err := s.readItems(); err != nil {
		return err
	}
	if s.isEmpty() {
		returned, err := sweepOne(s.tx, s.l, s.now)
		if err != nil {
			return err
		}
		if returned {
			if err := s.readItems(); err != nil {
				return err
			}
		}
	}
	if s.isEmpty() {
		s.tx.AddReadConflict(s.l.itemRange())
		for _, w := range s.line {
			s.sayEmpty(w)
		}
		return nil
	}
	q := queueOps{l: s.l}
	for _, w := range s.line {
		pair, ok := s.next(w)
		if !ok || s.bytes > serveBytes {
			break
		}
		id, err := s.l.parseItem(pair.Key)
		if err != nil {
			return err
		}
		s.tx.AddReadConflict(kv.SingleKey(pair.Key))
		s.tx.Clear(pair.Key)
		q.changed(&id, -1)
		if err := s.give(w, &id, pair); err != nil {
			return err
		}
		s.served++
		s.bytes += len(pair.Value)
	}
	q.count(s.tx)
	return nil
}

func (s *serving) sayEmpty(w *waiter) {
	s.remove(w)
	if w.id == s.own.id {
		s.own.fence(s.tx)
		s.result = &Result{Err: ErrEmpty}
		return
	}
	s.reply(w, nil)
}

// give gives an item to a request. Whoever serves takes its own at once.
func (s *serving) give(w *waiter, id *ID, pair kv.KeyValue) error {
	s.remove(w)
	if w.id == s.own.id {
		f := s.l.find(s.tx, pair)
		if err := f.wait(); err != nil {
			return err
		}
		if f.err == nil {
			f.clearParts(s.tx)
			s.own.take(s.tx, &f, s.now)
			s.result = &Result{Item: f.item}
			return nil
		}
	}
	s.reply(w, id)
	s.tx.Set(s.l.partKey(partValue, w.id), pair.Value)
	return nil
}

// reply writes the answer to a request.
func (s *serving) reply(w *waiter, item *ID) {
	a := answer{deadline: s.now.Add(answerLife), item: item}
	s.tx.Set(s.l.partKey(partAnswer, w.id), a.encode())
}

// readItems reads as many items from each end as are wanted from there. It
// reads without conflict; what is given conflicts with what takes the same.
func (s *serving) readItems() error {
	var want [2]int
	for _, w := range s.line {
		want[w.kind.end()]++
	}
	var reads [2]kv.Future[[]kv.KeyValue]
	for end, n := range want {
		if n > 0 {
			reads[end] = s.tx.Snapshot().GetRange(s.l.itemRange(), kv.RangeOptions{Limit: n, Reverse: end == backEnd})
		}
	}
	for end, read := range reads {
		if read == nil {
			continue
		}
		var err error
		if s.items[end], err = read.Get(); err != nil {
			return err
		}
	}
	s.given = make(map[string]struct{})
	return nil
}

func (s *serving) isEmpty() bool { return len(s.items[0])+len(s.items[1]) == 0 }

// next returns the next item for a request.
func (s *serving) next(w *waiter) (pair kv.KeyValue, ok bool) {
	items := &s.items[w.kind.end()]
	for len(*items) > 0 {
		pair, *items = (*items)[0], (*items)[1:]
		if _, gone := s.given[string(pair.Key)]; !gone {
			s.given[string(pair.Key)] = struct{}{}
			return pair, true
		}
	}
	return kv.KeyValue{}, false
}
