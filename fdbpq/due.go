package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The time index says what falls due in a queue, and when. Each key that falls due
// has an entry there, which is written and removed with it:
//
//	("t", due) + (kind, ...) = ""
//
// where due is in microseconds since 1970 and (kind, ...) is the key that falls
// due, as it stands below the queue's subspace. So far these are the answers and
// the marks of staged pops, ("f", 0, request) and ("f", 2, request).
//
// Nothing happens at the time itself: whoever needs to know the state of the
// queue reads the head of the index, up to now, and first does what is due. So far
// that is a pop that finds too few items. An entry whose key is gone is removed
// when it falls due: versions of this package that know no index leave such.
//
// An entry is removed only together with its key, or by a transaction that read
// that the key is gone and conflicts with whoever writes it.

// dueKey is the entry of a key that falls due at that time.
func (l *layout) dueKey(at time.Time, key []byte) []byte {
	rest := key[len(l.prefix):]
	return append(tuple.AppendInt(l.key(kindDue, 9+len(rest)), at.UnixMicro()), rest...)
}

// setUntil writes a key that falls due.
func (l *layout) setUntil(tx kv.Transaction, at time.Time, key, value []byte) {
	tx.Set(key, value)
	tx.Set(l.dueKey(at, key), []byte{})
}

// clearUntil removes a key that falls due, or fell due, at that time.
func (l *layout) clearUntil(tx kv.Transaction, at time.Time, key []byte) {
	tx.Clear(key)
	tx.Clear(l.dueKey(at, key))
}

// dueRange is the entries of what is due now.
func (l *layout) dueRange(now time.Time) kv.Range {
	all := within(l.key(kindDue, 1))
	return kv.Range{Begin: all.Begin, End: tuple.AppendInt(l.key(kindDue, 9), now.UnixMicro()+1)}
}

// duePage is the most entries of one queue that one transaction looks at.
const duePage = 256

// due is what is due in one queue.
type due struct {
	ledger *ledger
	head   kv.Future[[]kv.KeyValue] // nil as long as begin was not called

	returned bool  // items have come back
	err      error // ErrCorrupt: why nothing was done
}

// begin begins to read what is due. That is a read without conflict: what is done
// about it conflicts with whoever does the same.
func (d *due) begin() {
	if d.head == nil {
		g := d.ledger
		d.head = g.tx.Snapshot().GetRange(g.l.dueRange(g.now), kv.RangeOptions{Limit: duePage})
	}
}

// fallen is a key that is due, with its entry.
type fallen struct{ key, entry []byte }

// remove removes the key and its entry.
func (f *fallen) remove(tx kv.Transaction) {
	tx.Clear(f.key)
	tx.Clear(f.entry)
}

// bringBack does what is due in some queues of one transaction, and notes in which
// of them items have come back. The error is one of the store; if something that is
// due in a queue cannot be read, all is left there as it is and the error noted.
func bringBack(queues []*due) error {
	for _, d := range queues {
		d.begin()
	}
	var staged []*leftovers
	for _, d := range queues {
		entries, err := d.head.Get()
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			continue
		}
		left := &leftovers{due: d}
		staged = append(staged, left)
		for _, entry := range entries {
			if d.err = d.fall(entry.Key, left); d.err != nil {
				break
			}
		}
	}
	return returnStaged(staged)
}

// fall sees to an entry that is due.
func (d *due) fall(entry []byte, left *leftovers) error {
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
	f := fallen{key: append([]byte(l.prefix), rest...), entry: entry}
	if kind == kindAnswer && left.add(f, what) {
		return nil
	}
	return fmt.Errorf("%w: time index: key %x: this version does not know what falls due there", ErrCorrupt, entry)
}
