package requests

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// decodeSchedule reads a change of a schedule.
func (q *request) decodeSchedule(m *nats.Msg) error {
	op := &q.ops[0]
	c, err := subjects.ParseScheduleChange(m.Data)
	if err != nil {
		return err
	}

	if err := checkContent(&c.Schedule, &q.parsed); err != nil {
		return err
	}

	// With its message, measure refuses a schedule whose items the server could not carry.
	op.Message = fdbpq.Message{Value: c.Value, Headers: c.Headers}
	op.Record = c.ID
	op.Change = func(value []byte, now time.Time) ([]byte, error) {
		old, err := schedule.Parse(value)
		if err != nil {
			old = nil // there is none, or it cannot be read and is set again
		}

		set, err := c.Of(old, now)
		switch {
		case err != nil:
			return value, err
		case set == nil:
			return value, noSchedule(c.ID)
		}
		return set.Encode(), nil
	}

	return nil
}

// decodeUnschedule reads the id of a schedule that ends, whether or not it can be read.
func (q *request) decodeUnschedule(m *nats.Msg) error {
	op := &q.ops[0]
	id, err := subjects.ParseUnschedule(m.Data)
	op.Record = id
	op.Change = func(value []byte, _ time.Time) ([]byte, error) {
		if value == nil {
			return nil, noSchedule(id)
		}
		return nil, nil
	}
	return err
}

func noSchedule(id string) error {
	return fmt.Errorf("%w: %q: want the id of one that pq schedule ls lists", errNoSchedule, id)
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
		possible := name == subjects.HeaderGroup || name == subjects.HeaderKeep
		ofPush := subjects.IsReserved(name) || subjects.OfPushAlone(name) ||
			strings.EqualFold(name, subjects.HeaderSchedule)
		if ofPush && !possible {
			return bad(fmt.Errorf("%.64q: of the headers about the push itself, "+
				"a schedule takes only %s and %s",
				name, subjects.HeaderGroup, subjects.HeaderKeep))
		}
		if strings.ContainsAny(strings.Join(values, ""), "\r\n") {
			return bad(fmt.Errorf("%.64q: want values of one line", name))
		}
	}

	if err := checkPushed(m, r.Queue); err != nil {
		return bad(err)
	}

	for name := range s.Headers {
		if _, stored := m.Header[name]; !stored {
			return bad(fmt.Errorf("%.64q: it is not stored with an item: leave it out", name))
		}
	}

	if _, err := subjects.GroupOfPush(m.Header); err != nil {
		return bad(err)
	}
	var keep time.Duration
	if _, err := single(m.Header, subjects.HeaderKeep, subjects.ParseKeep, &keep); err != nil {
		return bad(err)
	}

	return nil
}

// schedulesPage returns a page of the schedules in records, without schedules that cannot be read.
// The records come after o.After and have up to about room bytes. A schedule that does not fit
// alone loses its value and headers.
func schedulesPage(records []fdbpq.Record, o subjects.ListOptions, room int) []byte {
	var page [][]byte
	var last *string
	read, most := 0, room
	for i := range records {
		record := &records[i]
		read += len(record.Value)
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

	if read < most { // there are no more records
		return subjects.EncodeScheduleList(page, nil)
	}
	return subjects.EncodeScheduleList(page, &records[len(records)-1].Name)
}
