package due

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Findings is the due entries of some queues, by kind.
type Findings struct {
	queues    []*Due
	any       bool
	staged    []*stagedAnswer
	expiring  []*expiringKey
	held      [][]*dueHeld // by queue
	schedules []*dueSchedule
}

// Find returns the due entries of the given queues that were not handled, nil if there are none.
// The error is one of the store. What cannot be read stays as it is, and Due.Err of its queue says
// why.
func Find(queues []*Due) (*Findings, error) {
	for _, d := range queues {
		d.ReadIndex()
	}

	found := &Findings{queues: queues}
	for _, d := range queues {
		if d.Handled {
			continue
		}

		d.Handled = true
		entries, err := d.Entries.Get()
		if err != nil {
			return nil, err
		}

		// A full page may not be all that is due.
		d.More = len(entries) == d.limit()

		found.held = append(found.held, nil)
		for _, entry := range entries {
			found.any = true
			if err := found.add(d, entry); err != nil {
				d.Err = err
			}
		}
	}

	if !found.any {
		return nil, nil
	}
	return found, nil
}

// BringBack handles the findings as far as there is room, and records in each queue what happened.
// The error is one of the store.
func (f *Findings) BringBack(budget *Budget) error {
	if err := f.handle(budget); err != nil {
		return err
	}

	// Expired items keep pops and peeks from the items behind them, and mostly lie together. So
	// where some were due and more follows, the transaction does as much as a sweep.
	var more []*Due
	for _, d := range f.queues {
		if d.Page == 0 && d.expired != nil && d.Behind() {
			more = append(more, d)
		}
	}

	for _, d := range more {
		d.Again()
		d.Page = max(SweepPage/len(more), 1)
	}

	budget.Fits = nil // something has moved, so no large dead letter comes first any more

	found, err := Find(more)
	if found != nil {
		err = found.handle(budget)
	}
	for _, d := range more {
		d.Page = 0
	}
	return err
}

// handle handles the findings. Schedules come last: their items may not overlap with one that has
// just gone.
func (f *Findings) handle(budget *Budget) error {
	return state.InOrder(
		func() error { return returnStaged(f.staged) },
		func() error { return state.Each(f.expiring, (*expiringKey).expire) },
		func() error { return returnHeld(inTurns(f.held), budget) },
		func() error { return fireSchedules(f.schedules, budget) },
	)
}

// add adds what an entry stands for, and starts to read it. Claims of staged pops it removes at
// once. The error is ErrCorrupt.
func (f *Findings) add(d *Due, pair kv.KeyValue) error {
	g, entry := d.Ledger, pair.Key
	_, rest, err := tuple.DecodeInt(entry[len(g.L.Prefix)+codec.KindSize:])
	var kind string
	var what []byte
	if err == nil {
		kind, what, err = tuple.DecodeString(rest)
	}

	if err != nil {
		return fmt.Errorf("%w: time index: key %x: %w", codec.ErrCorrupt, entry, err)
	}

	record := dueRecord{key: append([]byte(g.L.Prefix), rest...), entry: entry, says: pair.Value}
	switch kind {
	case codec.KindHeld, codec.KindExpiry:
		item := &dueHeld{dueRecord: record, due: d, ready: kind == codec.KindExpiry}
		if item.id, err = g.L.ParseItem(record.key); err != nil {
			return err
		}
		if item.ready {
			item.key = g.L.ItemKey(&item.id) // the entry names a key that does not exist
		}
		g.BeginSettings() // leases that have run out need them, and so does what expires
		last := len(f.held) - 1
		f.held[last] = append(f.held[last], item)
		return nil
	case codec.KindBucket:
		row := &expiringKey{record, d, g.Tx.Get(record.key), codec.BucketRowDue, ""}
		f.expiring = append(f.expiring, row)
		return nil
	case string(codec.ConsumerRecord):
		name, err := g.L.ParseRecordKey(record.key)
		if err == nil {
			c := &expiringKey{record, d, g.Tx.Get(record.key), codec.ConsumerExpires, name}
			f.expiring = append(f.expiring, c)
		}
		return err
	case string(codec.ScheduleRecord):
		s := &dueSchedule{dueRecord: record, due: d}
		f.schedules = append(f.schedules, s)
		s.id, err = g.L.ParseRecordKey(record.key)
		return err
	case codec.KindAnswer:
		if f.addStaged(d, record, what) {
			return nil
		}
	}

	return fmt.Errorf("%w: time index: key %x: this version cannot handle it",
		codec.ErrCorrupt, entry)
}

// addStaged adds an answer, or removes a claim. rest is the key behind ("f"). It reports whether
// keys like this one fall due.
func (f *Findings) addStaged(d *Due, record dueRecord, rest []byte) bool {
	g := d.Ledger
	part, request, err := tuple.DecodeInt(rest)
	switch {
	case err == nil && part == codec.PartClaim:
		record.remove(g.Tx)
		return true
	case err == nil && part == codec.PartAnswer:
		f.staged = append(f.staged, &stagedAnswer{
			dueRecord: record,
			due:       d,
			encoded:   g.Tx.Snapshot().Get(record.key),
			valueKey:  append(g.L.PartPrefix(codec.PartValue), request...),
		})
		return true
	}

	return false
}

// inTurns returns the first item of each list, then the second of each, and so on, so that no queue
// takes the budget of the others.
func inTurns(lists [][]*dueHeld) (all []*dueHeld) {
	total := 0
	for _, list := range lists {
		total += len(list)
	}
	for n := 0; len(all) < total; n++ {
		for _, list := range lists {
			if n < len(list) {
				all = append(all, list[n])
			}
		}
	}
	return all
}
