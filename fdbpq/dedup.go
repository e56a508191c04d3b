package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginDedup starts to read what the pushes need. It does nothing, and returns nil, if none has a message id or
// unique key.
func (t *txOps) beginDedup(q *queueOps, snapshot kv.Reader) *state.Dedup {
	var d *state.Dedup
	for _, i := range q.pushes {
		m := &t.ops[i].Message
		if m.MsgID == "" && m.Unique == "" || t.results[i].Err != nil {
			continue
		}
		if d == nil {
			d = &state.Dedup{MsgIDs: map[string]*state.DedupRead{}, Uniques: map[string]*state.DedupRead{}}
		}
		if m.MsgID != "" && d.MsgIDs[m.MsgID] == nil {
			d.MsgIDs[m.MsgID] = &state.DedupRead{Value: t.tx.Get(q.l.MsgIDKey(m.MsgID))}
		}
		if m.Unique != "" && d.Uniques[m.Unique] == nil {
			d.Uniques[m.Unique] = &state.DedupRead{Value: t.tx.Get(q.l.UniqueKey(m.Unique))}
		}
	}
	if d != nil && len(d.MsgIDs) > 0 {
		d.Over = snapshot.GetRange(q.l.OverRange(t.now), kv.RangeOptions{Limit: codec.OverPage * len(d.MsgIDs)})
	}
	return d
}

// loadDedup waits for what begin started, and fails the pushes whose keys cannot be read. The error is one of
// the store.
func (t *txOps) loadDedup(q *queueOps) error {
	d := q.dedup
	if d == nil {
		return nil
	}
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
		read.Found = read.Found && read.Seen.Until.After(t.now)
	}
	if err := d.LoadUniques(t.tx.Snapshot(), q.l); err != nil {
		return err
	}
	if q.due.Behind() {
		if err := d.FreeExpired(&q.ledger); err != nil {
			return err
		}
	}
	for _, i := range q.pushes {
		m, result := &t.ops[i].Message, &t.results[i]
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
