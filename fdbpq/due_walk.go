package fdbpq

import (
	"bytes"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// dueWalk walks the held items of a queue that are due and would come back to it, from one of its ends, for
// a cursor. It is for queues where more is due than the transaction brings back, because pops, leases and peeks do
// not need all of it: the first item from an end is the first of those in ("i") or the first that is due of
// those in ("h"), whichever comes first. Held items are in the order of their places, so where most are due
// the first is found at once. Where a great many are not, a walk gives up, and all that is due has to come back
// first.
//
// It reads without conflict, as due.begin does: whoever takes an item conflicts with everyone who handles the same.
type dueWalk struct {
	ledger *ledger
	due    *due
	end    End
	prompt bool // it gives up silently

	rest  kv.Range                 // what is not read yet
	size  int                      // of the page being read
	page  kv.Future[[]kv.KeyValue] // nil if none is
	items []kv.KeyValue            // read, not looked at yet
	left  int                      // records that may still be read
	bytes int                      // of those read
}

const (
	// walkedItems and walkedBytes limit what a dueWalk reads.
	walkedItems = 20_000
	walkedBytes = 8_000_000
	// walkedExpired limits the items in ("i") that have expired, on the way: of a peek, and of all pops of a
	// transaction, which remove them.
	walkedExpired = 512

	firstWalkPage = 64
	maxWalkPage   = 1024
	walkPageBytes = 1_000_000
)

// errUndecided is for a dueWalk that gives up: it does not know which item is the first.
var errUndecided = errors.New("too many items are held before the first that is due")

// walksDue reports whether more is due in a queue than this transaction and others before it have brought back, or
// can: the transaction is the caller's, or they have had their time.
func (t *txOps) walksDue(q *queueOps) bool {
	return q.due.more && (t.callers || isLate(t.late, q.l))
}

// walkDue starts a walk for a cursor that will probably need want items.
func (d *due) walkDue(end End, want int, prompt bool) *dueWalk {
	g := d.ledger
	w := &dueWalk{
		ledger: g, due: d, end: end, prompt: prompt,
		rest: g.l.kindRange(kindHeld), size: min(want+1, firstWalkPage), left: walkedItems,
	}
	w.requestPage()
	return w
}

func (w *dueWalk) requestPage() {
	w.page = w.ledger.tx.Snapshot().GetRange(w.rest, kv.RangeOptions{Limit: w.size, Reverse: w.end == Back})
}

// before returns the next item that comes before s, nil if there is none; before all if s is nil. The error is
// errUndecided or one of the store.
func (w *dueWalk) before(s *stored) (*stored, error) {
	for {
		for len(w.items) > 0 {
			pair := w.items[0]
			if s != nil && !w.comesBefore(pair.Key, s.pair.Key) {
				return nil, nil
			}
			w.items = w.items[1:]
			if item, err := w.parse(pair); item != nil || err != nil {
				return item, err
			}
		}
		if more, err := w.arrive(); err != nil || !more {
			return nil, err
		}
	}
}

// comesBefore reports whether a held item comes before one that is ready.
func (w *dueWalk) comesBefore(held, item []byte) bool {
	place := len(w.ledger.l.prefix) + kindSize
	order := bytes.Compare(held[place:], item[place:])
	return order < 0 == (w.end == Front)
}

// arrive reads the next page. It reports whether there was one.
func (w *dueWalk) arrive() (more bool, err error) {
	if w.page == nil {
		if w.rest.Empty() {
			return false, nil
		}
		if w.left <= 0 || w.bytes >= walkedBytes {
			if w.prompt {
				return false, nil
			}
			return false, errUndecided
		}
		w.size = min(4*w.size, maxWalkPage, max(walkPageBytes*(walkedItems-w.left)/max(w.bytes, 1), 1))
		w.requestPage()
	}
	w.items, err = w.page.Get()
	if err != nil {
		return false, err
	}
	w.page = nil
	w.left -= len(w.items)
	for _, pair := range w.items {
		w.bytes += len(pair.Key) + len(pair.Value)
	}
	switch last := len(w.items) - 1; {
	case len(w.items) < w.size:
		w.rest = kv.Range{}
	case w.end == Front:
		w.rest.Begin = kv.SingleKey(w.items[last].Key).End
	default:
		w.rest.End = w.items[last].Key
	}
	return true, nil
}

// nextLive returns the next item. With a dueWalk, items in ("i") may have expired, and it steps over these. The error
// is errUndecided or one of the store.
func (c *cursor) nextLive(now time.Time) (*stored, error) {
	for range walkedExpired {
		s, err := c.next()
		if c.due == nil || s == nil || s.held != nil || err != nil {
			return s, err
		}
		s.beginRead(c.r, c.l, c.asked.Bytes)
		if err := s.finishRead(); err != nil {
			return nil, err
		}
		if s.headless { // it is not known whether it has expired
			if err := s.readRest(c.r, c.l, noBound); err != nil {
				return nil, err
			}
		}
		if !expired(s.item.Expires, now) {
			return s, nil
		}
	}
	return nil, errUndecided
}

// parse returns the item of a held record, nil unless it is due and comes back to the queue. What cannot be read
// stays as it is, and due.err says why. The error is one of the store.
func (w *dueWalk) parse(pair kv.KeyValue) (*stored, error) {
	g := w.ledger
	id, err := g.l.parseItem(pair.Key)
	if err != nil {
		w.due.err = err
		return nil, nil
	}
	h, err := parseHeld(&id, pair.Value)
	if err != nil {
		w.due.err = err
		return nil, nil
	}
	comes, err := g.comesBack(h)
	if errors.Is(err, ErrCorrupt) {
		w.due.err = err
		return nil, nil
	}
	if err != nil || !comes {
		return nil, err
	}
	s := g.l.storedAs(id, kv.KeyValue{Key: g.l.itemKey(&id), Value: h.value})
	s.held = h
	return &s, nil
}

// comesBack reports whether a held item is due and returns to the queue, rather than expire, move to the
// dead-letter queue or wait out a backoff. The error is ErrCorrupt or one of the store.
func (g *ledger) comesBack(h *held) (bool, error) {
	if h.fallsDue().After(g.now) || h.expired(g.now) {
		return false, nil
	}
	if h.state != leased {
		return true, nil
	}
	settings, err := g.settings()
	if err != nil {
		return false, err
	}
	return !settings.exhausted(h.deliveries) && !h.due.Add(settings.backoffAfter(h.deliveries)).After(g.now), nil
}
