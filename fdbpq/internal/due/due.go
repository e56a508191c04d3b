package due

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

const (
	// DuePage is the most entries of one queue that a transaction handles, unless it sweeps the queue.
	DuePage = 256
	// SweptPage is the same for the queues of OpSweeps, together. A request that comes
	// meanwhile waits for it, which takes some 30 ms.
	SweptPage = 2048
	// HeldBytes is about the most bytes of held items that it returns to all of its queues, beside a push of
	// MaxMessageSize, and MostHeldBytes where there is room for that.
	HeldBytes     = 500_000
	MostHeldBytes = 1_000_000
	// ExpiredBytes and MostExpiredBytes are the same for state.ExpiredSize of the expired items that it removes.
	ExpiredBytes     = 250_000
	MostExpiredBytes = 4_000_000
)

// Due is what has fallen due in one queue.
type Due struct {
	Ledger *state.Ledger
	Dead   *Burials
	Page   int                      // entries to handle; 0 means DuePage
	Head   kv.Future[[]kv.KeyValue] // nil before begin

	expired  *state.Expiries // what of that is ready items; nil if nothing is
	Handled  bool
	Done     bool      // it has brought back or removed something
	Returned bool      // items came back, or expired
	Next     time.Time // when the first of those that a backoff holds back is due
	More     bool      // there may be more than the transaction has room for
	Err      error     // ErrCorrupt if something that is due cannot be read
}

// Begin starts to read what is due, without conflict: handling it conflicts with
// everyone who handles the same.
func (d *Due) Begin() {
	g := d.Ledger
	switch {
	case d.Head != nil:
		return
	case g.Facts.Quiet(g.Now):
		d.Head = state.Nothing
		return
	}
	d.Head = g.Tx.Snapshot().GetRange(g.L.DueRange(g.Now), kv.RangeOptions{Limit: d.limit()})
	if g.Facts == nil {
		return
	}
	if entries, err := d.Head.Get(); err == nil && len(entries) == 0 {
		g.Facts.LearnDue(g.Tx.Snapshot(), g.L)
	}
}

func (d *Due) limit() int { return cmp.Or(d.Page, DuePage) }

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

// DueRoom is the room that one transaction has for what is due.
type DueRoom struct {
	Bytes   int // about; what is left of it
	Expired int // the same for expired items, which only have to be removed
	// fits, unless nil, reports whether a dead letter that exceeds bytes has room nevertheless, and takes it.
	Fits func(size int) bool
}

// BringBack handles what is due in the given queues, as much as there is room for, and records in each
// whether items came back. The error is one of the store. What cannot be read stays as it is, and the
// due.err of its queue says why.
func BringBack(queues []*Due, room *DueRoom) error {
	for _, d := range queues {
		d.Begin()
	}

	var staged []*leftovers
	var byQueue [][]*dueHeld
	for _, d := range queues {
		if d.Handled {
			continue
		}
		d.Handled = true
		entries, err := d.Head.Get()
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			continue
		}
		d.More = len(entries) == d.limit()
		left := &leftovers{due: d}
		staged = append(staged, left)
		var items []*dueHeld
		for _, entry := range entries {
			if err := d.resolve(entry, left, &items); err != nil {
				d.Err = err
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

// Behind reports whether another transaction may bring back more. It does not while
// something cannot be read, which would come first again.
func (d *Due) Behind() bool { return d.More && d.Err == nil }

// resolve adds what an entry stands for to left or to all.
func (d *Due) resolve(pair kv.KeyValue, left *leftovers, all *[]*dueHeld) error {
	l, entry := d.Ledger.L, pair.Key
	_, rest, err := tuple.DecodeInt(entry[len(l.Prefix)+codec.KindSize:])
	var kind string
	var what []byte
	if err == nil {
		kind, what, err = tuple.DecodeString(rest)
	}
	if err != nil {
		return fmt.Errorf("%w: time index: key %x: %w", codec.ErrCorrupt, entry, err)
	}
	record := dueRecord{key: append([]byte(l.Prefix), rest...), entry: entry, says: pair.Value}
	if kind == codec.KindAnswer && left.add(record, what) {
		return nil
	}
	if kind == codec.KindHeld || kind == codec.KindExpiry {
		id, err := l.ParseItem(record.key)
		if err != nil {
			return err
		}
		item := &dueHeld{dueRecord: record, due: d, id: id, ready: kind == codec.KindExpiry}
		d.Ledger.BeginSettings() // for leases that have run out, and what expires
		if item.ready {
			item.key = l.ItemKey(&id)
		}
		*all = append(*all, item)
		return nil
	}
	return fmt.Errorf("%w: time index: key %x: this version cannot handle it", codec.ErrCorrupt, entry)
}
