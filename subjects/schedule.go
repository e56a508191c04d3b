package subjects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/schedule"
)

// ScheduleChange is the payload of a Schedule: a schedule to be set, or {"id":"nightly","paused":true}
// or {"id":"nightly","run":true}, which pause an existing one, let it go on, or fire it now.
type ScheduleChange struct {
	schedule.Schedule
	Run bool `json:"run,omitempty"`

	pauses bool // it only says whether the schedule is paused
}

// ParseScheduleChange reads the payload of a Schedule. Errors wrap schedule.ErrInvalid.
func ParseScheduleChange(payload []byte) (c ScheduleChange, err error) {
	if c, err = schedule.Decode[ScheduleChange](payload); err != nil {
		return c, err
	}

	var given struct {
		Paused *bool `json:"paused"`
	}
	_ = json.Unmarshal(payload, &given) // Decode has read it
	bare := reflect.DeepEqual(c.Schedule, schedule.Schedule{ID: c.ID, Paused: c.Paused})
	switch c.pauses = bare && given.Paused != nil && !c.Run; {
	case c.Run && (!bare || given.Paused != nil):
		return c, fmt.Errorf("%w: run: want nothing else beside the id, as in {\"id\":\"nightly\",\"run\":true}", schedule.ErrInvalid)
	case c.Run || c.pauses:
		return c, nil
	case bare && c.ID != "":
		return c, fmt.Errorf("%w: want cron or every to set one, or run or paused to change one, as in {\"id\":\"nightly\",\"run\":true}", schedule.ErrInvalid)
	}
	return c, c.Check()
}

// Of returns what the change makes of a record; nil is none, and what it returns for that if there has
// to be one. Errors wrap schedule.ErrInvalid.
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

// Encode returns the payload that ParseScheduleChange reads.
func (c ScheduleChange) Encode() []byte { return EncodeReply(c) }

// EncodePause returns the payload that pauses a schedule or lets it go on.
func EncodePause(id string, paused bool) []byte {
	return EncodeReply(struct {
		ID     string `json:"id"`
		Paused bool   `json:"paused"`
	}{id, paused})
}

// scheduleID is the payload of an Unschedule.
type scheduleID struct {
	ID string `json:"id"`
}

// ParseUnschedule reads the payload of an Unschedule, {"id":"nightly"}. Errors wrap schedule.ErrInvalid.
func ParseUnschedule(payload []byte) (id string, err error) {
	named, err := schedule.Decode[scheduleID](payload)
	return named.ID, err
}

// EncodeUnschedule returns the payload that ParseUnschedule reads.
func EncodeUnschedule(id string) []byte { return EncodeReply(scheduleID{id}) }

// ScheduleList is the reply to a Schedules, whose payload is ListOptions: a page.
type ScheduleList struct {
	Schedules []*schedule.Record `json:"schedules"`
	// Next is the After of the next page, nil if this is the last one.
	Next *string `json:"next"`
}

// EncodeScheduleList returns a ScheduleList of records that are encoded already.
func EncodeScheduleList(records [][]byte, next *string) []byte {
	payload := append([]byte(`{"schedules":[`), bytes.Join(records, []byte{','})...)
	return append(append(append(payload, `],"next":`...), EncodeReply(next)...), '}')
}
