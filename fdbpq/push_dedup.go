package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginDedup starts to read the rows of the message ids and unique keys of the pushes at the given
// indexes, with conflict. It returns nil if there are none.
func (q *queueTxn) beginDedup(indexes []int) (d *state.Dedup) {
	for _, i := range indexes {
		m := &q.ops[i].Message
		if m.MsgID == "" && m.Unique == "" || q.results[i].Err != nil {
			continue
		}

		if d == nil {
			d = &state.Dedup{}
			d.MsgIDs, d.Uniques = map[string]*state.DedupRead{}, map[string]*state.DedupRead{}
		}
		if m.MsgID != "" && d.MsgIDs[m.MsgID] == nil {
			d.MsgIDs[m.MsgID] = &state.DedupRead{Value: q.tx.Get(q.l.MsgIDKey(m.MsgID))}
		}
		if m.Unique != "" && d.Uniques[m.Unique] == nil {
			d.Uniques[m.Unique] = &state.DedupRead{Value: q.tx.Get(q.l.UniqueKey(m.Unique))}
		}
	}

	// Each new message id removes a few whose window is over.
	if d != nil && len(d.MsgIDs) > 0 {
		page := kv.RangeOptions{Limit: codec.OverPage * len(d.MsgIDs)}
		d.Over = q.snapshot.GetRange(q.l.OverRange(q.now), page)
	}
	return d
}

// loadDedup waits for what beginDedup started, and fails the pushes whose keys cannot be read. The
// error is one of the store.
func (q *queueTxn) loadDedup(d *state.Dedup, indexes []int) error {
	if d == nil {
		return nil
	}

	// Without the settings, it is unknown how long message ids count.
	var unreadable error
	if d.Over != nil {
		settings, err := q.ledger.Settings()
		if codec.UnlessCorrupt(err) != nil {
			return err
		}
		if unreadable = err; err == nil {
			d.Window = settings.Window()
		}
	}

	for _, id := range d.MsgIDs {
		if err := id.Parse(codec.ParseSeen); err != nil {
			return err
		}
		id.Found = id.Found && id.Seen.Until.After(q.now)
	}
	if err := d.LoadUniques(q.snapshot, q.l); err != nil {
		return err
	}
	for _, i := range indexes {
		m, result := &q.ops[i].Message, &q.results[i]
		if m.MsgID != "" && result.Err == nil {
			result.Err = unreadable
			if err := d.MsgIDs[m.MsgID].Err; err != nil {
				result.Err = err
			}
		}
		if m.Unique != "" && result.Err == nil {
			unique := d.Uniques[m.Unique]
			result.Err = unique.Err
			if unique.Found && q.due.Behind() { // its item may have expired
				result.Err = ErrNoRoom
			}
		}
	}
	return nil
}
