package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// errMoved is the error of a message that says that it was in a queue before.
var errMoved = badOp("Message.First is set: want it nil, the queue sets it")

// checkPush returns an error if no queue can have the message, or not with these options.
func (op *Op) checkPush(*codec.Layout) error {
	if size := op.Message.Size(); size > MaxMessageSize {
		const text = "%w: value and headers are %d bytes: want at most %d"
		return fmt.Errorf(text, ErrMessageTooLarge, size, MaxMessageSize)
	}
	if n := max(len(op.Message.MsgID), len(op.Message.Unique)); n > MaxKey {
		return badOp("a message id or unique key of %d bytes: want at most %d", n, MaxKey)
	}

	if op.Message.First != nil {
		return errMoved
	}

	group := op.Message.Headers[GroupHeader]
	if op.Weight < 0 || op.Weight > MaxWeight || op.Weight > 0 && group == nil {
		return badOp("bad weight %d: want 1 to %d, beside %s", op.Weight, MaxWeight, GroupHeader)
	}
	if err := codec.CheckGroup(group); err != nil {
		return err
	}
	if err := op.checkKeep(); err != nil {
		return err
	}
	return op.checkTimes()
}

// pushBytes is about how many bytes of a transaction an OpPush takes.
func (op *Op) pushBytes(l *codec.Layout) int {
	n := op.Message.Size() + l.DedupSize(&op.Message)
	if op.Message.Group() != "" {
		n += l.GroupSize()
	}
	return n
}

// checkTimes returns an error if an OpPush cannot have these times.
func (op *Op) checkTimes() error {
	switch {
	case op.Delay < 0 || op.Delay > MaxDelay:
		return badOp("a delay of %v: want 0 to %v", op.Delay, MaxDelay)
	case op.Delay > 0 && !op.At.IsZero():
		return badOp("a delay of %v and one until %v: want one of them", op.Delay, op.At)
	case op.At.Unix() >= codec.LastTime/1e6:
		return badOp("a delay until %v: want a time before 2200", op.At)
	}

	if op.TTL != Never {
		if err := settings.CheckBounds(op.TTL, MinTTL, MaxTTL); err != nil {
			return badOp("it expires after %w", err)
		}
	}
	at := op.Message.Expires
	if !at.IsZero() && (at.Unix() < codec.FirstTime/1e6 || at.Unix() >= codec.LastTime/1e6) {
		return badOp("it expires at %v: want a time from 2020 on and before 2200", at)
	}
	return nil
}

// weight is how many items of its group the push puts into a turn.
func (op *Op) weight() int { return max(op.Weight, 1) }

// delays reports whether the push may keep its item back.
func (op *Op) delays() bool { return op.Delay > 0 || !op.At.IsZero() }

// heldUntil returns until when an item that is pushed now is held back; zero if it is ready.
func (op *Op) heldUntil(now time.Time) time.Time {
	until := codec.Micros(now.Add(op.Delay))
	if !op.At.IsZero() {
		until = codec.Micros(op.At)
	}
	if until.After(codec.Micros(now)) {
		return until
	}
	return time.Time{}
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

// messageOf is the message of a push as it is stored.
func (t *txn) messageOf(i int, settings *Settings) Message {
	op := &t.ops[i]
	m := op.Message
	m.Expires = op.expires(t.now, settings)
	return m
}

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
