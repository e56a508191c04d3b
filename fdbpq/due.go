package fdbpq

import (
	"bytes"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The time index says what falls due in a queue, and when. Each key that falls due has an
// entry, written and removed together with the key:
//
//	("t", due) + (kind, ...) = ""
//
// due is in microseconds since 1970, and (kind, ...) is the key that falls due, without the
// queue's subspace. These are held items, ("h", priority, count, random), and the answers and
// claims of staged pops, ("f", 0, request) and ("f", 2, request).
//
// Nothing runs at the due time itself. A transaction that depends on the state of the
// queue reads the index up to now and first handles what is due. Earlier versions of this package, which do not know the
// index, leave entries without keys; these are removed when they fall due.
//
// An entry is removed together with its key, or by a transaction that has read that the
// key is gone and conflicts with whoever writes it.

// dueKey returns the entry for a key that falls due at the given time.
func (l *layout) dueKey(at time.Time, key []byte) []byte {
	rest := key[len(l.prefix):]
	return append(tuple.AppendInt(l.key(kindDue, 9+len(rest)), at.UnixMicro()), rest...)
}

// setUntil writes a key that falls due at the given time.
func (l *layout) setUntil(tx kv.Transaction, at time.Time, key, value []byte) {
	tx.Set(key, value)
	tx.Set(l.dueKey(at, key), []byte{})
}

// clearUntil removes a key that falls due, or fell due, at the given time.
func (l *layout) clearUntil(tx kv.Transaction, at time.Time, key []byte) {
	tx.Clear(key)
	tx.Clear(l.dueKey(at, key))
}

// dueRange is the range of the entries that are due.
func (l *layout) dueRange(now time.Time) kv.Range {
	all := within(l.key(kindDue, 1))
	return kv.Range{Begin: all.Begin, End: tuple.AppendInt(l.key(kindDue, 9), now.UnixMicro()+1)}
}

// duePage is the most entries of one queue that one transaction handles.
const duePage = 256

// due is what has fallen due in one queue.
type due struct {
	ledger *ledger
	head   kv.Future[[]kv.KeyValue] // nil before begin

	handled  bool
	returned bool  // items came back
	err      error // ErrCorrupt if nothing was done
}

// begin starts to read what is due, without conflict: handling it conflicts with
// everyone who handles the same.
func (d *due) begin() {
	if d.head == nil {
		g := d.ledger
		d.head = g.tx.Snapshot().GetRange(g.l.dueRange(g.now), kv.RangeOptions{Limit: duePage})
	}
}

// dueRecord is a key that is due, and its entry.
type dueRecord struct{ key, entry []byte }

// remove removes both.
func (r *dueRecord) remove(tx kv.Transaction) {
	tx.Clear(r.key)
	tx.Clear(r.entry)
}

// bringBack handles what is due in the given queues, and records in each whether items
// came back. The error is one of the store. If something due in a queue cannot be read,
// nothing changes there, and its due.err says why.
func bringBack(queues []*due) error {
	for _, d := range queues {
		d.begin()
	}
	var staged []*leftovers
	var all []*dueHeld
	for _, d := range queues {
		if d.handled {
			continue
		}
		d.handled = true
		entries, err := d.head.Get()
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			continue
		}
		left := &leftovers{due: d}
		staged = append(staged, left)
		n := len(all)
		for _, entry := range entries {
			if d.err = d.resolve(entry.Key, left, &all); d.err != nil {
				all = all[:n]
				break
			}
		}
	}
	if err := returnStaged(staged); err != nil {
		return err
	}
	return returnHeld(all)
}

// dueHeld is a held item that has fallen due.
type dueHeld struct {
	dueRecord
	due     *due
	id      ID
	encoded kv.Future[[]byte]
}

// returnHeld returns held items to their old places.
func returnHeld(all []*dueHeld) error {
	for _, d := range all {
		encoded, err := d.encoded.Get()
		if err != nil {
			return err
		}
		g := d.due.ledger
		if encoded == nil { // this transaction has settled it
			g.tx.Clear(d.entry)
			continue
		}
		h, err := parseHeld(&d.id, encoded)
		if err != nil {
			d.due.err = err
			continue
		}
		if !bytes.Equal(g.l.dueKey(h.due, d.key), d.entry) { // it was extended meanwhile
			g.tx.Clear(d.entry)
			continue
		}
		g.release(h)
		g.putBack(h)
		d.due.returned = true
	}
	return nil
}

// resolve adds what an entry stands for to left or to all.
func (d *due) resolve(entry []byte, left *leftovers, all *[]*dueHeld) error {
	l := d.ledger.l
	_, rest, err := tuple.DecodeInt(entry[len(l.prefix)+kindSize:])
	var kind string
	var what []byte
	if err == nil {
		kind, what, err = tuple.DecodeString(rest)
	}
	if err != nil {
		return fmt.Errorf("%w: time index: key %x: %w", ErrCorrupt, entry, err)
	}
	record := dueRecord{key: append([]byte(l.prefix), rest...), entry: entry}
	if kind == kindAnswer && left.add(record, what) {
		return nil
	}
	if kind == kindHeld {
		id, err := l.parseItem(record.key)
		if err != nil {
			return err
		}
		*all = append(*all, &dueHeld{record, d, id, d.ledger.tx.Get(record.key)})
		return nil
	}
	return fmt.Errorf("%w: time index: key %x: this version cannot handle it", ErrCorrupt, entry)
}
