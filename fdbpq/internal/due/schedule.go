package due

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Headers of the items of schedules, and one of schedules.
const (
	HeaderSchedule    = "Pq-Schedule"     // the id of the schedule
	HeaderScheduledAt = "Pq-Scheduled-At" // the time that it fired for, in RFC 3339

	headerKeep = "Pq-Keep" // the Message.Keep of its items
)

// schedulesAtOnce is how many records are in memory at once. Each can have 64 KiB.
const schedulesAtOnce = 16

// dueSchedule is a schedule whose next time has come.
type dueSchedule struct {
	dueRecord
	due    *Due
	id     string
	value  kv.Future[[]byte]
	record *schedule.Record // before it fires

	priority int64 // of its items
}

// fireSchedules pushes the items of schedules, and writes when they fire next. As with items that
// come back, the limits of the queue do not apply. The error is one of the store.
func fireSchedules(all []*dueSchedule, budget *Budget) error {
	for some := range slices.Chunk(all, schedulesAtOnce) {
		if budget.Bytes <= 0 {
			for _, s := range some {
				s.due.More = true
			}
			continue
		}
		for _, s := range some {
			s.value = s.due.Ledger.Tx.Get(s.key)
		}
		if err := fireSome(some, budget); err != nil {
			return err
		}
	}

	return nil
}

// fireSome is fireSchedules for some whose records are being read.
func fireSome(some []*dueSchedule, budget *Budget) error {
	if err := state.Each(some, (*dueSchedule).load); err != nil {
		return err
	}

	for _, s := range some {
		switch {
		case s.record == nil:
		case budget.Bytes <= 0:
			s.due.More = true
		default:
			if err := s.fire(budget); err != nil {
				return err
			}
		}
		s.record, s.value = nil, nil // they hold the values of items
	}

	return nil
}

// load waits for the record, and starts to read what pushing takes. A record that cannot be read
// stays. An entry that does not belong to the record goes.
func (s *dueSchedule) load() error {
	// The entry may be of an earlier record, or of one that is gone.
	value, err := s.value.Get()
	if err != nil {
		return err
	}

	g := s.due.Ledger
	record, err := schedule.Parse(value)
	if value == nil || err == nil && !bytes.Equal(g.L.DueKey(record.Next, s.key), s.entry) {
		g.Tx.Clear(s.entry)
		return nil
	}

	if err != nil {
		s.due.Err = codec.ErrCorrupt
		return nil
	}

	s.record = record
	if !g.L.Fifo {
		s.priority = record.Priority
	}
	s.due.Outgoing.To(g.L, s.priority)
	return nil
}

// fire pushes an item for each time that is due, as far as there is room.
func (s *dueSchedule) fire(budget *Budget) error {
	g := s.due.Ledger
	to := s.due.Outgoing.To(g.L, s.priority)
	if err := to.LoadNext(s.priority); err != nil {
		return s.due.noteUnreadable(err)
	}

	settings, err := to.Ledger.ReadableSettings()
	if err != nil {
		return err
	}

	var once *state.Dedup // whether an item of the schedule is in the queue; nil if all may be
	if s.record.Overlap == schedule.Skip {
		if once, err = g.ReadUnique(s.unique()); err != nil {
			return s.due.noteUnreadable(err)
		}
	}

	// Fire moves the copy past the times that it returns.
	set, size := *s.record, s.record.Size()+state.RestoreOverhead
	for _, at := range set.Fire(g.Now, budget.Bytes/size+1) {
		if at.After(set.Last) { // not so if a bridge whose clock is behind runs the schedule now
			set.Last = at
		}

		m := s.message(at, settings)
		if once.First(m) != nil {
			set.Outcome = schedule.Overlapped
			set.Skipped++
			continue
		}

		id := to.Push(s.priority, m, g.Now, set.ReadyAt(g.L.Prefix, at))
		once.Pushed(g, &id, m)
		set.Outcome = schedule.Pushed
		set.Fired++
		g.SideEffects.Fired++
		g.SideEffects.Late += g.Now.Sub(at)
		budget.Bytes -= size
	}

	g.SideEffects.Skipped += set.Skipped - s.record.Skipped
	value := set.Encode()
	budget.Bytes -= len(value)
	g.SetRecord(codec.ScheduleRecord, s.id, value, s.record.Next, set.Next)
	s.due.Done, s.due.Returned = true, true
	s.due.More = s.due.More || set.Due(g.Now)
	return nil
}

// unique is the unique key that all items of the schedule have if they must not overlap.
func (s *dueSchedule) unique() string { return "schedule:" + s.id }

// message returns the message for a time of the schedule.
func (s *dueSchedule) message(at time.Time, settings *codec.Settings) *codec.Message {
	headers := make(map[string][]string, len(s.record.Headers)+2)
	maps.Copy(headers, s.record.Headers)
	m := &codec.Message{Value: s.record.Value, Headers: headers}
	m.Headers[HeaderSchedule] = []string{s.id}
	m.Headers[HeaderScheduledAt] = []string{at.UTC().Format(strictjson.TimeLayout)}
	if s.record.Overlap == schedule.Skip {
		m.Unique = s.unique()
	}

	if keep := headers[headerKeep]; len(keep) > 0 {
		m.Keep, _ = strictjson.ParseDuration(keep[0]) // it was checked when it was set
		delete(headers, headerKeep)
	}
	if settings.TTL > 0 {
		m.Expires = codec.Micros(s.due.Ledger.Now.Add(settings.TTL))
	}
	return m
}
