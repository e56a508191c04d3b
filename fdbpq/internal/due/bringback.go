package due

import (
	"bytes"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// BringBack handles what is due in the given queues, as much as there is room for, and records in
// each whether items came back. The error is one of the store. What cannot be read stays as it is,
// and the Due.Err of its queue says why.
func BringBack(queues []*Due, room *Room) error {
	if err := bringBackPages(queues, room); err != nil {
		return err
	}

	// Expired items keep pops and peeks from those behind them, and mostly lie together. So where some
	// are among more that is due, a transaction does as much as a sweep.
	var more []*Due
	for _, d := range queues {
		if d.Page == 0 && d.expired != nil && d.Behind() {
			more = append(more, d)
		}
	}
	for _, d := range more {
		d.Again()
		d.Page = max(SweepPage/len(more), 1)
	}
	room.Fits = nil // something has moved
	err := bringBackPages(more, room)
	for _, d := range more {
		d.Page = 0
	}
	return err
}

// bringBackPages handles a page of what is due in each of the queues.
func bringBackPages(queues []*Due, room *Room) error {
	for _, d := range queues {
		d.ReadIndex()
	}

	var staged []*uncollected
	var gone []*lapsed
	var byQueue [][]*dueHeld
	var schedules []*dueSchedule
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
		var items []*dueHeld
		for _, entry := range entries {
			if err := d.resolve(entry, &staged, &gone, &schedules, &items); err != nil {
				d.Err = err
			}
		}
		byQueue = append(byQueue, items)
	}

	if err := returnStaged(staged); err != nil {
		return err
	}
	if err := removeLapsed(gone); err != nil {
		return err
	}
	if err := returnHeld(inTurns(byQueue), room); err != nil {
		return err
	}
	return fireSchedules(schedules, room) // last, because what has gone may not overlap
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

// resolve adds what an entry stands for to one of the lists.
func (d *Due) resolve(pair kv.KeyValue, staged *[]*uncollected, gone *[]*lapsed, schedules *[]*dueSchedule, all *[]*dueHeld) error {
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
	if kind == codec.KindAnswer && d.resolveStaged(record, what, staged) {
		return nil
	}
	if kind == codec.KindBucket || kind == string(codec.ConsumerRecord) {
		until := codec.ConsumerExpires
		if kind == codec.KindBucket {
			until = codec.BucketRowDue
		}
		*gone = append(*gone, &lapsed{record, d, d.Ledger.Tx.Get(record.key), until})
		return nil
	}
	if kind == string(codec.ScheduleRecord) {
		id, err := l.ParseRecordKey(record.key)
		*schedules = append(*schedules, &dueSchedule{dueRecord: record, due: d, id: id, value: d.Ledger.Tx.Get(record.key)})
		return err
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

// lapsed is a key that is removed once it is due, and no more: the row of a rate that allows a full
// burst again (see state.Bucket), or a consumer that nobody uses.
type lapsed struct {
	dueRecord
	due   *Due
	value kv.Future[[]byte]
	until func(value []byte) time.Time // when it falls due
}

// removeLapsed removes keys with their entries. An entry whose key has another time goes alone.
func removeLapsed(all []*lapsed) error {
	for _, r := range all {
		value, err := r.value.Get()
		if err != nil {
			return err
		}

		g := r.due.Ledger
		if value != nil && bytes.Equal(g.L.DueKey(r.until(value), r.key), r.entry) {
			g.Tx.Clear(r.key)
		}
		g.Tx.Clear(r.entry)
		r.due.Done = true
	}
	return nil
}
