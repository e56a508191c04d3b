package staged

import (
	"cmp"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// serving answers the requests in line in one transaction.
type serving struct {
	tx     kv.Transaction
	g      *state.Ledger
	own    *request
	line   []*codec.LineEntry
	items  state.Ends
	bytes  int           // of the values that were given
	result *fdbpq.Result // of own
}

// serve answers the requests in line in tx. own is one of them, or joins them as the last. It
// returns the result of own, nil if own has to wait for the next serving.
func serve(tx kv.Transaction, own *request, joins bool, now time.Time) (*fdbpq.Result, error) {
	g, outgoing := state.NewLedger(tx, own.l, now, nil), due.Outgoing{Tx: tx, Now: now}
	s := &serving{tx: tx, g: &g, own: own}
	d := due.Due{Ledger: s.g, Outgoing: &outgoing}

	// The line takes one round trip with the settings and the time index.
	g.BeginSettings()
	d.ReadIndex()
	if err := s.readLine(joins); err != nil || len(s.line) == 0 {
		return nil, err
	}

	s.readItems()
	if err := s.items.Arrive(); err != nil {
		return nil, err
	}

	budget := due.Budget{Bytes: due.HeldBytes, Expired: due.MostExpiredBytes}
	if s.items.Empty() { // there is nothing to give, so the first large dead letter has room
		budget.Fits = func(int) bool { return !d.Done }
	}

	found, err := due.Find([]*due.Due{&d})
	if found != nil {
		err = found.BringBack(&budget)
	}
	if err != nil {
		return nil, err
	}

	if d.Returned {
		s.readItems()
	}

	if err := s.items.Arrive(); err != nil {
		return nil, err
	}

	if err := s.answerLine(&d); err != nil {
		return nil, err
	}
	return s.result, cmp.Or(outgoing.Flush(), g.Flush())
}

// readLine reads the first requests in line, and removes expired ones.
func (s *serving) readLine(joins bool) error {
	requests, some := s.g.L.RequestRange(), kv.RangeOptions{Limit: serveLimit}
	pairs, err := s.tx.Snapshot().GetRange(requests, some).Get()
	if err != nil {
		return err
	}

	for _, pair := range pairs {
		w, err := s.g.L.ParseRequest(pair)
		if err != nil {
			return err
		}

		if w.Deadline.Before(s.g.Now) {
			s.dequeue(w)
		} else {
			s.line = append(s.line, w)
		}
	}

	if joins {
		s.line = append(s.line, &codec.LineEntry{End: s.own.end, ID: s.own.id})
	}
	return nil
}

// dequeue removes a request from the line.
func (s *serving) dequeue(w *codec.LineEntry) {
	if w.Key != nil { // else it joins, and has no key
		s.tx.AddReadConflict(kv.SingleKey(w.Key))
		s.tx.Clear(w.Key)
	}
}

// readItems starts to read as many items from each end as the line wants. It reads without
// conflict: giving an item conflicts with everything else that takes it.
func (s *serving) readItems() {
	var want [2]int
	for _, w := range s.line {
		want[w.End]++
	}
	s.items = s.g.WalkEnds(s.tx.Snapshot(), want, serveBytes, 0)
}

// answerLine gives items to the requests in order, until it runs out of either.
func (s *serving) answerLine(d *due.Due) error {
	limits, err := s.g.ReadableSettings()
	if err != nil {
		return err
	}

	// The answer is "empty" only if there is no item at all, because it conflicts with every push,
	// and only if nothing more is due.
	var none error
	switch paused := codec.PausedAt(limits, s.g.Now); {
	case paused != nil:
		none = paused
	case !s.items.Empty():
	case d.Behind():
		return nil
	case d.Err != nil:
		return d.Err
	default:
		s.tx.AddReadConflict(s.g.L.ItemRange())
		none = fdbpq.ErrEmpty
	}

	for _, w := range s.line {
		if none != nil {
			s.sayEmpty(w, none)
			continue
		}

		item, err := s.items.Peek(w.End)
		if err != nil {
			return err
		}

		if item == nil || s.bytes > serveBytes {
			break
		}

		if err := s.give(w, item); err != nil {
			return err
		}
	}

	return nil
}

// sayEmpty answers that there is no item. Only the Popper's own request learns why.
func (s *serving) sayEmpty(w *codec.LineEntry, why error) {
	s.dequeue(w)
	if w.ID == s.own.id {
		s.own.fence(s.tx)
		s.result = &fdbpq.Result{Err: why}
		return
	}
	s.answer(w, nil)
}

// give gives an item to a request. The Popper takes the item of its own request at once, unless the
// item cannot be read.
func (s *serving) give(w *codec.LineEntry, item *state.ItemRead) (err error) {
	if item.Err != nil {
		return item.Err
	}

	s.items.Walks[w.End].Drop()
	s.items.NoteTaken(w.End, item.Pair.Key)
	s.tx.AddReadConflict(kv.SingleKey(item.Pair.Key))
	s.dequeue(w)
	s.g.Detach(item.Pair.Key, &item.Item.ID)
	s.bytes += len(item.Pair.Value)

	if w.ID == s.own.id {
		item.BeginRead(s.tx, s.g.L, 0)
		history := state.ReadHistory(s.g.L, s.tx, &item.Item.ID)
		if err := item.FinishRead(); err != nil {
			return err
		}

		if item.Err == nil {
			s.result, err = s.own.take(s.g, item, history)
			return err
		}
	}

	s.answer(w, &item.Item.ID)
	s.tx.Set(s.g.L.PartKey(codec.PartValue, w.ID), item.Pair.Value)
	return nil
}

// answer writes the answer to a request.
func (s *serving) answer(w *codec.LineEntry, item *fdbpq.ID) {
	a := codec.Answer{Deadline: s.g.Now.Add(answerLife), Item: item}
	state.SetUntil(s.g.L, s.tx, a.Deadline, s.g.L.PartKey(codec.PartAnswer, w.ID), a.Encode())
}
