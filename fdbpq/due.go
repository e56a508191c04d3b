package fdbpq

import (
	"cmp"
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
// claims of staged pops, ("f", 0, request) and ("f", 2, request). ("x", priority, count, random)
// stands for an item in ("i") that expires, with its unique key as the value: see expiry.go.
//
// Nothing runs at the due time itself. A transaction that depends on the state of the
// queue reads the index up to now and first handles what is due. Earlier versions of this
// package, which do not know the index, leave entries without keys; these are removed when
// they fall due.
//
// There is one way back. Each transaction that looks at a queue handles what is due there, at most duePage
// entries, in the order in which they fell due. What is left counts as what it was, leased or delayed, and is
// served once it is back; Pending.Behind names its queue, so that a sweeper can go on with OpSweep, which takes
// more at a time. An item that has expired is never served, whether it is removed yet or not: see expiry.go.
// An operation that cannot tell yet what its result is, such as a pop that has met nothing but expired items,
// fails with an error that wraps ErrNoRoom: the next transaction goes on where this one has ended.
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
func (l *layout) dueRange(now time.Time) kv.Range { return l.timesUpTo(kindDue, now) }

// timesUpTo is the range of the keys of a kind that begin with a time in microseconds, up to now.
func (l *layout) timesUpTo(kind string, now time.Time) kv.Range {
	return kv.Range{Begin: l.kindRange(kind).Begin, End: tuple.AppendInt(l.key(kind, 9), now.UnixMicro()+1)}
}

// laterRange is the range of the entries that are not due yet.
func (l *layout) laterRange(now time.Time) kv.Range {
	return kv.Range{Begin: l.dueRange(now).End, End: l.kindRange(kindDue).End}
}

// dueTime returns when an entry falls due.
func (l *layout) dueTime(entry []byte) (time.Time, error) {
	at, _, err := tuple.DecodeInt(entry[len(l.prefix)+kindSize:])
	return time.UnixMicro(at).UTC(), err
}

const (
	// duePage is the most entries of one queue that a transaction handles, unless it sweeps the queue.
	duePage = 256
	// sweptPage is the same for the queues of OpSweeps, together. A request that comes
	// meanwhile waits for it, which takes some 30 ms.
	sweptPage = 2048
	// heldBytes is about the most bytes of held items that it returns to all of its queues, beside a push of
	// MaxMessageSize, and mostHeldBytes where there is room for that.
	heldBytes     = 500_000
	mostHeldBytes = 1_000_000
)

// due is what has fallen due in one queue.
type due struct {
	ledger *ledger
	dead   *burials
	page   int                      // entries to handle; 0 means duePage
	head   kv.Future[[]kv.KeyValue] // nil before begin

	expired  *expiries // what of that is ready items; nil if nothing is
	handled  bool
	done     bool      // it has brought back or removed something
	returned bool      // items came back, or expired
	next     time.Time // when the first of those that a backoff holds back is due
	more     bool      // there may be more than the transaction has room for
	err      error     // ErrCorrupt if something that is due cannot be read
}

// begin starts to read what is due, without conflict: handling it conflicts with
// everyone who handles the same.
func (d *due) begin() {
	g := d.ledger
	switch {
	case d.head != nil:
		return
	case g.facts.quiet(g.now):
		d.head = nothing
		return
	}
	d.head = g.tx.Snapshot().GetRange(g.l.dueRange(g.now), kv.RangeOptions{Limit: d.limit()})
	if g.facts == nil {
		return
	}
	if entries, err := d.head.Get(); err == nil && len(entries) == 0 {
		g.facts.learnDue(g.tx.Snapshot(), g.l)
	}
}

func (d *due) limit() int { return cmp.Or(d.page, duePage) }

// dueRecord is a key that is due, and its entry.
type dueRecord struct {
	key, entry []byte
	says       []byte // the value of the entry
}

// remove removes both.
func (r *dueRecord) remove(tx kv.Transaction) {
	tx.Clear(r.key)
	tx.Clear(r.entry)
}

// dueRoom is the room that one transaction has for what is due.
type dueRoom struct {
	bytes int // about; what is left of it
	// fits, unless nil, reports whether a dead letter that exceeds bytes has room nevertheless, and takes it.
	fits func(size int) bool
}

// bringBack handles what is due in the given queues, as much as there is room for, and records in each
// whether items came back. The error is one of the store. What cannot be read stays as it is, and the
// due.err of its queue says why.
func bringBack(queues []*due, room *dueRoom) error {
	for _, d := range queues {
		d.begin()
	}

	var staged []*leftovers
	var byQueue [][]*dueHeld
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
		d.more = len(entries) == d.limit()
		left := &leftovers{due: d}
		staged = append(staged, left)
		var items []*dueHeld
		for _, entry := range entries {
			if err := d.resolve(entry, left, &items); err != nil {
				d.err = err
			}
		}
		byQueue = append(byQueue, items)
	}

	if err := returnStaged(staged); err != nil {
		return err
	}
	return returnHeld(inTurns(byQueue), room)
}

// inTurns returns the first of each list, then the second of each, and so on: no queue takes the room of
// the others.
func inTurns(lists [][]*dueHeld) (all []*dueHeld) {
	if len(lists) == 1 {
		return lists[0]
	}
	for n := 0; ; n++ {
		before := len(all)
		for _, list := range lists {
			if n < len(list) {
				all = append(all, list[n])
			}
		}
		if len(all) == before {
			return all
		}
	}
}

// behind reports whether another transaction may bring back more. It does not while
// something cannot be read, which would come first again.
func (d *due) behind() bool { return d.more && d.err == nil }

// resolve adds what an entry stands for to left or to all.
func (d *due) resolve(pair kv.KeyValue, left *leftovers, all *[]*dueHeld) error {
	l, entry := d.ledger.l, pair.Key
	_, rest, err := tuple.DecodeInt(entry[len(l.prefix)+kindSize:])
	var kind string
	var what []byte
	if err == nil {
		kind, what, err = tuple.DecodeString(rest)
	}
	if err != nil {
		return fmt.Errorf("%w: time index: key %x: %w", ErrCorrupt, entry, err)
	}
	record := dueRecord{key: append([]byte(l.prefix), rest...), entry: entry, says: pair.Value}
	if kind == kindAnswer && left.add(record, what) {
		return nil
	}
	if kind == kindHeld || kind == kindExpiry {
		id, err := l.parseItem(record.key)
		if err != nil {
			return err
		}
		item := &dueHeld{dueRecord: record, due: d, id: id, ready: kind == kindExpiry}
		d.ledger.beginSettings() // for leases that have run out, and what expires
		if item.ready {
			item.key = l.itemKey(&id)
		}
		*all = append(*all, item)
		return nil
	}
	return fmt.Errorf("%w: time index: key %x: this version cannot handle it", ErrCorrupt, entry)
}
