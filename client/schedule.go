package client

import (
	"cmp"
	"context"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
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
// and the errors of any request.
func (q *Queue) SetSchedule(ctx context.Context, s Schedule) (ScheduleRecord, error) {
	var err error
	for name, values := range s.Headers {
		err = cmp.Or(err, wantUTF8(name), wantUTF8(values...))
	}
	if err != nil {
		return ScheduleRecord{}, err
	}

	return q.changeSchedule(ctx, s.ID, subjects.ScheduleChange{Schedule: s}.Encode())
}

// PauseSchedule pauses a schedule, or resumes it with its next time from now.
//
// Errors: [ErrNotFound], and the errors of any request.
func (q *Queue) PauseSchedule(ctx context.Context, id string, paused bool) (ScheduleRecord, error) {
	return q.changeSchedule(ctx, id, subjects.EncodePause(id, paused))
}

// RunSchedule fires a schedule now, in addition to its times, even if it is paused. After an
// [ErrUnknownOutcome] it may have fired.
//
// Errors: as for PauseSchedule.
func (q *Queue) RunSchedule(ctx context.Context, id string) (ScheduleRecord, error) {
	run := subjects.ScheduleChange{Schedule: Schedule{ID: id}, Run: true}
	return q.changeSchedule(ctx, id, run.Encode())
}

func (q *Queue) changeSchedule(
	ctx context.Context, id string, payload []byte,
) (ScheduleRecord, error) {
	if err := wantUTF8(id); err != nil {
		return ScheduleRecord{}, err
	}
	return query(ctx, q, subjects.Schedule, payload, subjects.ParseReply[schedule.Record])
}

// Schedules returns all schedules of the queue, sorted by ID. It sends as many requests as it
// takes.
//
// Errors: as for any request.
func (q *Queue) Schedules(ctx context.Context) ([]*ScheduleRecord, error) {
	var all []*ScheduleRecord
	for after := ""; ; {
		page, err := q.SchedulesPage(ctx, after)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Schedules...); page.Next == nil {
			return all, nil
		}
		after = *page.Next
	}
}

// SchedulesPage is one request of Schedules, for callers that do not keep all of them: those after
// an ID, "" for the first, as many as fit into a message.
//
// Errors: as for any request.
func (q *Queue) SchedulesPage(ctx context.Context, after string) (subjects.ScheduleList, error) {
	payload := subjects.ListOptions{After: after}.Encode()
	return query(ctx, q, subjects.Schedules, payload, subjects.ParseReply[subjects.ScheduleList])
}

// Unschedule removes a schedule. The items that it has pushed stay.
//
// Errors: [ErrNotFound], and the errors of any request.
func (q *Queue) Unschedule(ctx context.Context, id string) error {
	if err := wantUTF8(id); err != nil {
		return err
	}

	payload := subjects.EncodeUnschedule(id)
	_, err := query(ctx, q, subjects.Unschedule, payload, subjects.ParseReply[subjects.Removed])
	return err
}
