package client

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/subjects"
)

// Schedule is what a queue pushes again and again, and when: see [schedule.Schedule].
type Schedule = schedule.Schedule

// Interval is a duration of a Schedule, as in Schedule{ID: "tick", Every: Interval(15 * time.Minute)}.
type Interval = schedule.Duration

// ScheduleRecord is a Schedule as its queue keeps it: with when it fires next, when it last did, and
// how often.
type ScheduleRecord = schedule.Record

// SetSchedule creates a schedule, or replaces the one with its ID, whose counts go on. Whichever bridge
// is there pushes its items, each exactly once.
//
// Errors: [ErrBadRequest] for what a schedule cannot say, or one more than a queue can have; and those
// that every call can return.
func (q *handle) SetSchedule(ctx context.Context, s Schedule) (ScheduleRecord, error) {
	return q.changeSchedule(ctx, subjects.ScheduleChange{Schedule: s}.Encode())
}

// PauseSchedule keeps a schedule from firing, or lets it go on with the next time from now.
//
// Errors: [ErrNotFound], and those that every call can return.
func (q *handle) PauseSchedule(ctx context.Context, id string, paused bool) (ScheduleRecord, error) {
	return q.changeSchedule(ctx, subjects.EncodePause(id, paused))
}

// RunSchedule fires a schedule now, besides its times, also one that is paused. After an
// [ErrUnknownOutcome] it may have fired.
//
// Errors: as PauseSchedule.
func (q *handle) RunSchedule(ctx context.Context, id string) (ScheduleRecord, error) {
	return q.changeSchedule(ctx, subjects.ScheduleChange{Schedule: Schedule{ID: id}, Run: true}.Encode())
}

func (q *handle) changeSchedule(ctx context.Context, payload []byte) (ScheduleRecord, error) {
	return query(ctx, q, subjects.Schedule, payload, subjects.ParseReply[schedule.Record])
}

// Schedules returns the schedules of the queue, sorted by ID, in as many requests as it takes.
//
// Errors: those that every call can return.
func (q *handle) Schedules(ctx context.Context) ([]*ScheduleRecord, error) {
	var all []*ScheduleRecord
	for o := (subjects.ListOptions{}); ; {
		page, err := query(ctx, q, subjects.Schedules, o.Encode(), subjects.ParseReply[subjects.ScheduleList])
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Schedules...); page.Next == nil {
			return all, nil
		}
		o.After = *page.Next
	}
}

// Unschedule removes a schedule. Its items stay.
//
// Errors: [ErrNotFound], and those that every call can return.
func (q *handle) Unschedule(ctx context.Context, id string) error {
	_, err := query(ctx, q, subjects.Unschedule, subjects.EncodeUnschedule(id), subjects.ParseReply[subjects.Removed])
	return err
}
