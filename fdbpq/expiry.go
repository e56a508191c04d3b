package fdbpq

import (
	"fmt"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// An item may expire: Message.Expires, in its ("m") keys, says when. While it is in ("i"), it has an
// entry in the time index,
//
//	("t", expires) + ("x", priority, count, random) = unique key
//
// written and removed together with its key in ("i"). Whoever finds the entry due removes the item, and
// frees its unique key, if it has one, without reading the ("m") keys.
// While it is held, its record says when it expires; a delayed item falls due then, at the latest.
// A leased one expires when its lease ends: whoever holds it may still acknowledge it. Staged pops,
// which need not know what they move, leave the entry where it is, and write it again if the item comes back: see
// staged_return.go.
//
// A pop or lease that meets an expired item all the same, because its transaction had no room for all
// that was due, removes it as well, and goes on to the next, as far as a transaction has room. A peek steps over it.

// Bounds of the time after which an item expires.
const (
	MinTTL = settings.MinTTL
	MaxTTL = MaxDelay
)

// Never as Op.TTL is no expiry, whatever Settings.TTL says.
const Never = time.Duration(math.MinInt64)

// expiryKey is the part of an entry of the time index that names an item in ("i"). There is no such
// key.
func (l *layout) expiryKey(id *ID) []byte { return l.idKey(kindExpiry, id) }

// setExpiry writes the entry of an item in ("i"), if it expires.
func (g *ledger) setExpiry(id *ID, l lasting) {
	if !l.expires.IsZero() {
		g.tx.Set(g.l.dueKey(l.expires, g.l.expiryKey(id)), []byte(l.unique))
		g.noteDue(l.expires)
	}
}

// clearExpiry removes what setExpiry wrote.
func (g *ledger) clearExpiry(id *ID, at time.Time) {
	if !at.IsZero() {
		g.tx.Clear(g.l.dueKey(at, g.l.expiryKey(id)))
	}
}

// expired reports whether something that expires at a time has; zero is never.
func expired(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

func (h *held) expired(now time.Time) bool { return expired(h.expires, now) }

// hasExpired reports whether an item counts as gone: it has expired, and nobody has a lease of it, which may
// be over.
func (h *heldItem) hasExpired(now time.Time) bool {
	return h.expired(now) && (h.ready || h.state == delayed)
}

// fallsDue is when something has to be done about a held item.
func (h *held) fallsDue() time.Time {
	if h.state == delayed {
		return earliest(h.due, h.expires)
	}
	return h.due
}

// expireLent removes the rest of an item that has expired.
func (g *ledger) expireLent(h *held) {
	g.discard(h)
	g.removed.Expired++
}

// maxExpired is how many expired items all pops of a transaction remove at most on their way, and each
// peek steps over.
const maxExpired = 2048

// errNotYet is for pops and peeks that have found nothing so far. What comes back next, or lies behind more
// expired items than a transaction removes, may be theirs.
var errNotYet = fmt.Errorf("%w so far: %w", ErrEmpty, ErrNoRoom)

// nextLive returns the next item from an end, read in full, nil if there is none. It has expired ones on the
// way removed. The error is errNotYet or one of the store.
func (t *txOps) nextLive(q *queueOps, end End) (*stored, error) {
	for {
		if t.expired >= maxExpired {
			return nil, errNotYet
		}
		s, err := q.pops.ends.next(end)
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.readUnlessExpired(t.tx, q.l, t.now, t.returned.page()); err != nil || !has {
			return s, err
		}
		t.expired++
		q.pops.ends.noteExpired(end, s)
		q.pops.expired = append(q.pops.expired, s.expiredItem())
	}
}

// removeExpired removes what nextLive has stepped over. That comes last, because a store may have to look through
// all that a transaction has written for each read that follows. The error is one of the store.
func (q *queueOps) removeExpired() error {
	if len(q.pops.expired) == 0 {
		return nil
	}
	q.due.done = true
	e := expiries{g: &q.ledger, items: q.pops.expired, walked: true}
	e.begin()
	if err := e.arrive(); err != nil {
		return err
	}
	return e.remove()
}

// nextLive returns the next item, nil after the last. It steps over expired ones. The error is errNotYet or one of
// the store.
func (c *cursor) nextLive(now time.Time) (*stored, error) {
	for range maxExpired {
		s, err := c.next()
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.readUnlessExpired(c.r, c.l, now, c.asked.Bytes); err != nil || !has {
			return s, err
		}
		c.noteExpired()
	}
	return nil, errNotYet
}

// expires returns when the item of a push expires; zero if it does not.
func (op *Op) expires(now time.Time, s *Settings) time.Time {
	switch {
	case op.TTL == Never:
		return time.Time{}
	case op.TTL > 0:
		return micros(now.Add(op.TTL))
	case !op.Message.Expires.IsZero():
		return micros(op.Message.Expires)
	case s.TTL > 0:
		return micros(now.Add(s.TTL))
	}
	return time.Time{}
}

// checkTTL returns an error if an OpPush cannot have this expiry.
func (op *Op) checkTTL() error {
	if op.TTL != Never {
		if err := settings.CheckBounds(op.TTL, MinTTL, MaxTTL); err != nil {
			return fmt.Errorf("%w: it expires after %w", ErrOp, err)
		}
	}
	if at := op.Message.Expires; !at.IsZero() && (at.Unix() < firstTime/1e6 || at.Unix() >= lastTime/1e6) {
		return fmt.Errorf("%w: it expires at %v: want a time from 2020 on and before 2200", ErrOp, at)
	}
	return nil
}
