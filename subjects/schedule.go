package subjects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// ScheduleChange is the payload of a Schedule. It is a schedule to set, or a change of an existing
// one: {"id":"nightly","paused":true} pauses it, with false it goes on, and
// {"id":"nightly","run":true} fires it now.
type ScheduleChange struct {
	schedule.Schedule
	Run bool `json:"run,omitzero"`

	pauses bool // the payload has only id and paused
}

// ParseScheduleChange reads the payload of a Schedule. Errors wrap [schedule.ErrInvalid].
func ParseScheduleChange(payload []byte) (c ScheduleChange, err error) {
	if c, err = schedule.Decode[ScheduleChange](payload); err != nil {
		return c, err
	}

	var given struct {
		Paused *bool `json:"paused"`
	}
	_ = json.Unmarshal(payload, &given) // Decode has already read it

	// A bare change says nothing about what the schedule pushes or when.
	bare := reflect.DeepEqual(c.Schedule, schedule.Schedule{ID: c.ID, Paused: c.Paused})
	c.pauses = bare && given.Paused != nil && !c.Run
	const as = `as in {"id":"nightly","run":true}`
	switch {
	case c.Run && (!bare || given.Paused != nil):
		return c, fmt.Errorf("%w: run: want nothing else beside the id, "+as, schedule.ErrInvalid)
	case c.Run || c.pauses:
		return c, nil
	case bare && c.ID != "":
		return c, fmt.Errorf("%w: want cron or every to set one, or run or paused to change one, "+
			as, schedule.ErrInvalid)
	}
	return c, c.Check()
}

// Of applies the change to a record, nil if there is no such schedule, and returns the new record.
// It returns nil if the change needs an existing schedule and there is none. Errors wrap
// [schedule.ErrInvalid].
func (c *ScheduleChange) Of(old *schedule.Record, now time.Time) (*schedule.Record, error) {
	switch {
	case c.Run && old != nil:
		return old.Run(now), nil
	case c.pauses && old != nil:
		return old.Pause(c.Paused, now), nil
	case c.Run || c.pauses:
		return nil, nil
	}

	r := schedule.Set(old, &c.Schedule, now)
	return r, r.CheckUntil(now)
}

// Encode returns the payload that [ParseScheduleChange] reads.
func (c ScheduleChange) Encode() []byte { return strictjson.Marshal(c) }

// EncodePause returns the payload of a Schedule that pauses a schedule, or resumes it.
func EncodePause(id string, paused bool) []byte {
	return strictjson.Marshal(struct {
		ID     string `json:"id"`
		Paused bool   `json:"paused"`
	}{id, paused})
}

// scheduleID is the payload of an Unschedule.
type scheduleID struct {
	ID string `json:"id"`
}

// ParseUnschedule reads the payload of an Unschedule, {"id":"nightly"}. Errors wrap
// [schedule.ErrInvalid].
func ParseUnschedule(payload []byte) (id string, err error) {
	named, err := schedule.Decode[scheduleID](payload)
	return named.ID, err
}

// EncodeUnschedule returns the payload that [ParseUnschedule] reads.
func EncodeUnschedule(id string) []byte { return strictjson.Marshal(scheduleID{id}) }

// ScheduleList is one page of schedules, the payload of the reply to a Schedules. The request has
// [ListOptions].
type ScheduleList struct {
	// Schedules are sorted by id.
	Schedules []*schedule.Record `json:"schedules"`
	// Next is the After of the next page, or nil if this is the last one.
	Next *string `json:"next"`
}

// EncodeScheduleList returns the JSON of a ScheduleList whose records are already encoded.
func EncodeScheduleList(records [][]byte, next *string) []byte {
	payload := append([]byte(`{"schedules":[`), bytes.Join(records, []byte{','})...)
	return append(append(append(payload, `],"next":`...), strictjson.Marshal(next)...), '}')
}
