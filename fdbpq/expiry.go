package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// nextLive returns the next item from an end, read in full, nil if there is none. It has expired
// ones on the way removed. The error is ErrMoreExpired or one of the store.
func (q *queuePops) nextLive(end End) (*state.Stored, error) {
	for {
		s, err := q.ends.Next(end)
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.ReadUnlessExpired(q.tx, q.l, q.now, q.returned.Page()); err != nil || !has {
			return s, err
		}

		if q.all.stepped.Enough() || q.moving.forExpired() <= 0 {
			return nil, state.ErrMoreExpired
		}
		q.all.stepped.Note(s)
		q.moving.takeExpired(state.ExpiredSize(q.l, s.Item.Unique))
		q.ends.NoteExpired(end, s)
		q.expired = append(q.expired, s.ExpiredItem(q.l))
	}
}

// removeExpired removes what nextLive has stepped over. That comes last, because a store may have
// to look through all that a transaction has written for each read that follows. The error is one
// of the store.
func (q *queuePops) removeExpired() error {
	if len(q.expired) == 0 {
		return nil
	}
	q.due.Done = true
	return state.RemoveExpired(&state.Expiries{G: &q.ledger, Items: q.expired, Walked: true})
}
