package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// NextLive returns the next item from an end, read in full, nil if there is none. It has expired ones on the
// way removed. The error is ErrMoreExpired or one of the store.
func (t *txOps) nextLive(q *queueOps, end End) (*state.Stored, error) {
	for {
		s, err := q.pops.ends.Next(end)
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.ReadUnlessExpired(t.tx, q.l, t.now, t.returned.Page()); err != nil || !has {
			return s, err
		}
		if t.stepped.Enough() || t.expiredRoom() <= 0 {
			return nil, state.ErrMoreExpired
		}
		t.stepped.Note(s)
		t.takeExpired(state.ExpiredSize(q.l, s.Item.Unique))
		q.pops.ends.NoteExpired(end, s)
		q.pops.expired = append(q.pops.expired, s.ExpiredItem(q.l))
	}
}

// removeExpired removes what NextLive has stepped over. That comes last, because a store may have to look through
// all that a transaction has written for each read that follows. The error is one of the store.
func (q *queueOps) removeExpired() error {
	if len(q.pops.expired) == 0 {
		return nil
	}
	q.due.Done = true
	e := state.Expiries{G: &q.ledger, Items: q.pops.expired, Walked: true}
	e.Begin()
	if err := e.Arrive(); err != nil {
		return err
	}
	return e.Remove()
}

// expires returns when the item of a push expires; zero if it does not.
func (op *Op) expires(now time.Time, s *Settings) time.Time {
	switch {
	case op.TTL == Never:
		return time.Time{}
	case op.TTL > 0:
		return codec.Micros(now.Add(op.TTL))
	case !op.Message.Expires.IsZero():
		return codec.Micros(op.Message.Expires)
	case s.TTL > 0:
		return codec.Micros(now.Add(s.TTL))
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
	if at := op.Message.Expires; !at.IsZero() && (at.Unix() < codec.FirstTime/1e6 || at.Unix() >= codec.LastTime/1e6) {
		return fmt.Errorf("%w: it expires at %v: want a time from 2020 on and before 2200", ErrOp, at)
	}
	return nil
}
