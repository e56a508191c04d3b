package bridge

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeSchedule reads a change of a schedule.
func decodeSchedule(m *nats.Msg, r *subjects.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	var err error
	op := &ops[0]
	change := func(*schedule.Record, time.Time) (*schedule.Record, error) { return nil, nil }
	if r.Verb == subjects.Unschedule {
		op.Record, err = subjects.ParseUnschedule(m.Data)
	} else {
		var c subjects.ScheduleChange
		c, err = subjects.ParseScheduleChange(m.Data)
		op.Record, change = c.ID, c.Of
		if err == nil {
			err = checkContent(&c.Schedule, r)
		}

		// With its message, measure refuses a schedule whose items the server could not carry.
		op.Message = fdbpq.Message{Value: c.Value, Headers: c.Headers}
	}

	if err != nil {
		return nil, err
	}

	id, sets := op.Record, r.Verb == subjects.Schedule
	op.Change = func(value []byte, now time.Time) ([]byte, error) {
		var old *schedule.Record
		if value != nil {
			var err error
			if old, err = schedule.Parse(value); err != nil {
				old = nil // what cannot be read can be set again, or removed
			}
		}

		set, err := change(old, now)
		if err != nil {
			return value, err
		}

		if set != nil {
			return set.Encode(), nil
		}

		if sets || value == nil {
			return value, fmt.Errorf("%w: %q: want the id of one that pq schedule ls lists",
				errNoSchedule, id)
		}

		return nil, nil
	}

	return ops, nil
}

// checkContent returns an error unless the items of a schedule can have its priority and headers.
func checkContent(s *schedule.Schedule, r *subjects.Request) error {
	if r.Kind == subjects.FIFO && s.Priority != 0 {
		return fmt.Errorf("%w: priority: %d: a FIFO queue has none: leave it out",
			schedule.ErrInvalid, s.Priority)
	}

	bad := func(err error) error { return fmt.Errorf("%w: headers: %w", schedule.ErrInvalid, err) }
	m := &nats.Msg{Header: nats.Header(maps.Clone(s.Headers)), Data: s.Value}
	for name, values := range m.Header {
		ofPush := subjects.IsReserved(name) && name != subjects.HeaderGroup ||
			subjects.OfPushAlone(name) || strings.EqualFold(name, subjects.HeaderSchedule)
		if ofPush {
			return bad(fmt.Errorf("%.64q: want none about the push itself but %s",
				name, subjects.HeaderGroup))
		}
		if strings.ContainsAny(strings.Join(values, ""), "\r\n") {
			return bad(fmt.Errorf("%.64q: want values of one line", name))
		}
	}

	if err := checkPushed(m, r.Queue); err != nil {
		return bad(err)
	}

	for name := range s.Headers {
		if _, kept := m.Header[name]; !kept {
			return bad(fmt.Errorf("%.64q: it is not stored with an item: leave it out", name))
		}
	}

	if _, err := subjects.GroupOfPush(m.Header); err != nil {
		return bad(err)
	}

	return nil
}

// schedulesPage returns a page of the schedules in records that can be read. If there is no room
// for one alone, its value and headers are left out.
func schedulesPage(records []fdbpq.Record, o subjects.ListOptions, room int) []byte {
	var page [][]byte
	var last *string
	for i := range records {
		record := &records[i]
		if record.Name <= o.After {
			continue
		}
		r, err := schedule.Parse(record.Value)
		if err != nil {
			continue
		}
		text := r.Encode()
		if len(text) > room && len(page) == 0 {
			r.Value, r.Headers = nil, nil
			text = r.Encode()
		} else if len(text) > room || len(page) == o.Limit {
			return subjects.EncodeScheduleList(page, last)
		}
		page, last = append(page, text), &record.Name
		room -= len(text) + len(",")
	}

	return subjects.EncodeScheduleList(page, nil)
}
