package client

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/subjects"
)

// Schedule says what a queue pushes again and again, and when: see [schedule.Schedule].
type Schedule = schedule.Schedule

// Interval is a duration of a Schedule, as in Schedule{ID: "tick", Every: Interval(15 *
// time.Minute)}.
type Interval = schedule.Duration

// ScheduleRecord is a Schedule with its state: when it fires next, when it last did, and how often.
type ScheduleRecord = schedule.Record

// SetSchedule creates a schedule, or replaces the one with its ID and keeps its counts. The bridges
// push its items, each exactly once, as long as one of them runs.
//
// Errors: [ErrBadRequest] if the schedule is not valid, or the queue has as many as it can have;
// and those that every call can return.
func (q *handle) SetSchedule(ctx context.Context, s Schedule) (ScheduleRecord, error) {
	return q.changeSchedule(ctx, subjects.ScheduleChange{Schedule: s}.Encode())
}

// PauseSchedule pauses a schedule, or resumes it with its next time from now.
//
// Errors: [ErrNotFound], and those that every call can return.
func (q *handle) PauseSchedule(ctx context.Context, id string,
	paused bool) (ScheduleRecord, error) {
	return q.changeSchedule(ctx, subjects.EncodePause(id, paused))
}

// RunSchedule fires a schedule now, in addition to its times, even if it is paused. After an
// [ErrUnknownOutcome] it may have fired.
//
// Errors: those of PauseSchedule.
func (q *handle) RunSchedule(ctx context.Context, id string) (ScheduleRecord, error) {
	run := subjects.ScheduleChange{Schedule: Schedule{ID: id}, Run: true}
	return q.changeSchedule(ctx, run.Encode())
}

func (q *handle) changeSchedule(ctx context.Context, payload []byte) (ScheduleRecord, error) {
	return query(ctx, q, subjects.Schedule, payload, subjects.ParseReply[schedule.Record])
}

// Schedules returns all schedules of the queue, sorted by ID. It sends as many requests as it
// takes.
//
// Errors: those that every call can return.
func (q *handle) Schedules(ctx context.Context) ([]*ScheduleRecord, error) {
	var all []*ScheduleRecord
	parse := subjects.ParseReply[subjects.ScheduleList]
	for o := (subjects.ListOptions{}); ; {
		page, err := query(ctx, q, subjects.Schedules, o.Encode(), parse)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Schedules...); page.Next == nil {
			return all, nil
		}
		o.After = *page.Next
	}
}

// Unschedule removes a schedule. The items that it has pushed stay.
//
// Errors: [ErrNotFound], and those that every call can return.
func (q *handle) Unschedule(ctx context.Context, id string) error {
	payload := subjects.EncodeUnschedule(id)
	_, err := query(ctx, q, subjects.Unschedule, payload, subjects.ParseReply[subjects.Removed])
	return err
}
