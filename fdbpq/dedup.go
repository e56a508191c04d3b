package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginDedup starts to read what is known of the message ids and unique keys of the pushes, with
// conflict. q.dedup stays nil if there are none.
func (q *queuePushes) beginDedup() {
	var d *state.Dedup
	for _, i := range q.indexes {
		m := &q.ops[i].Message
		if m.MsgID == "" && m.Unique == "" || q.results[i].Err != nil {
			continue
		}

		if d == nil {
			d = &state.Dedup{MsgIDs: map[string]*state.DedupRead{}, Uniques: map[string]*state.DedupRead{}}
		}
		if m.MsgID != "" && d.MsgIDs[m.MsgID] == nil {
			d.MsgIDs[m.MsgID] = &state.DedupRead{Value: q.tx.Get(q.l.MsgIDKey(m.MsgID))}
		}
		if m.Unique != "" && d.Uniques[m.Unique] == nil {
			d.Uniques[m.Unique] = &state.DedupRead{Value: q.tx.Get(q.l.UniqueKey(m.Unique))}
		}
	}

	if d != nil && len(d.MsgIDs) > 0 {
		d.Over = q.snapshot.GetRange(q.l.OverRange(q.now), kv.RangeOptions{Limit: codec.OverPage * len(d.MsgIDs)})
	}
	q.dedup = d
}

// loadDedup waits for what beginDedup started, and fails the pushes whose keys cannot be read. The
// error is one of the store.
func (q *queuePushes) loadDedup() error {
	d := q.dedup
	if d == nil {
		return nil
	}

	// Without the settings, nobody knows how long message ids count.
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

	for _, read := range d.MsgIDs {
		if err := read.Parse(codec.ParseSeen); err != nil {
			return err
		}
		read.Found = read.Found && read.Seen.Until.After(q.now)
	}
	if err := d.LoadUniques(q.snapshot, q.l); err != nil {
		return err
	}
	if q.due.Behind() { // the items that have a key may have expired
		if err := d.FreeExpired(&q.ledger); err != nil {
			return err
		}
	}

	for _, i := range q.indexes {
		m, result := &q.ops[i].Message, &q.results[i]
		if m.MsgID != "" && result.Err == nil {
			result.Err = unreadable
			if err := d.MsgIDs[m.MsgID].Err; err != nil {
				result.Err = err
			}
		}
		if m.Unique != "" && result.Err == nil {
			result.Err = d.Uniques[m.Unique].Err
		}
	}
	return nil
}
