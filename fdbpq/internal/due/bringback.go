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

// BringBack handles what is due in the given queues, as much as there is room for, and records in
// each whether items came back. The error is one of the store. What cannot be read stays as it is,
// and the Due.Err of its queue says why.
func BringBack(queues []*Due, room *Room) error {
	for _, d := range queues {
		d.ReadIndex()
	}

	var staged []*leftovers
	var byQueue [][]*dueHeld
	for _, d := range queues {
		if d.Handled {
			continue
		}
		d.Handled = true
		entries, err := d.Entries.Get()
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

// inTurns returns the first of each list, then the second of each, and so on: no queue takes the
// room of the others.
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

// ReturnDue handles what is due in a queue, in a transaction that has no other use for its
// ledger yet.
func ReturnDue(tx kv.Transaction, l *codec.Layout, now time.Time) (*Due, error) {
	g, dead := state.NewLedger(tx, l, now, nil), NewBurials(tx, now, nil)
	d := &Due{Ledger: &g, Dead: &dead}
	if err := BringBack([]*Due{d}, &Room{Bytes: HeldBytes, Expired: MostExpiredBytes}); err != nil {
		return nil, err
	}

	if err := cmp.Or(g.Flush(), dead.Flush()); err != nil {
		return nil, err
	}
	return d, d.Err
}
