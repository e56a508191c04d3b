package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// JobResult says what has become of a job. Its State is Ready, Delayed or Leased, Done once the job
// is acknowledged, or Dead if it is a dead letter, whatever it waits for.
type JobResult struct {
	subjects.JobInfo

	// Value is what the job returned, if HasResult.
	Value []byte
}

// Err returns a [*JobFailed] if the job is Dead, or else nil.
func (r *JobResult) Err() error {
	if r.State != Dead {
		return nil
	}
	failed := &JobFailed{ID: r.ID}
	if r.DeadLetter != nil {
		failed.DeadLetter = *r.DeadLetter
	}
	return failed
}

// JobFailed is the error of a job that became a dead letter.
type JobFailed struct {
	// ID is the id of the job.
	ID string
	// DeadLetter says why: its Reason, and as DeadLetter.Error the last error of a worker.
	subjects.DeadLetter
}

// Error implements error.
func (e *JobFailed) Error() string {
	deliveries := "1 delivery"
	if e.Deliveries != 1 {
		deliveries = fmt.Sprintf("%d deliveries", e.Deliveries)
	}

	text := fmt.Sprintf("job %s failed: %s (after %s)", e.ID, e.Reason, deliveries)
	if e.DeadLetter.Error != "" {
		text += ": " + e.DeadLetter.Error
	}
	return text
}

// ResultOption changes a Result: [Wait] and [Follow].
type ResultOption func(*resultQuery)

// Wait makes Result wait until the job is Done or Dead, but no longer than d, 0 to ten years. Then
// Result returns the state that the job has. 0, the default, means not to wait.
func Wait(d time.Duration) ResultOption { return func(q *resultQuery) { q.wait = d } }

// Follow makes Result go on from a job that is Done to the one that it has pushed, up to the last
// of a chain: one that has pushed nothing, or is not done. Result returns what that one has
// returned or, if it is not done, its state. A [Wait] is for all of them together.
//
// Each queue of the chain needs the settings Keep and Trail: where Trail is 0, nobody knows what a
// job has pushed, and the chain ends there. If a job of the chain is not kept, or gone, the error
// is [ErrNotFound]; if it has pushed several, [ErrChain].
func Follow() ResultOption { return func(q *resultQuery) { q.follow = true } }

// Result says what has become of a job, by the ID in the [PushAck] of its push. The ID stays the
// same when the job moves, becomes a dead letter or is sent back. A job that is Done is found for
// as long as it is kept: see [Keep].
//
// With [Wait], Result outlasts restarts of bridges and NATS servers: it asks again until the time
// is over or ctx ends.
//
// Errors: [ErrNotFound] if there is no such job, or it is over and was not kept, or no more;
// [ErrBadRequest] for a malformed id; and the errors of any request.
func (q *Queue) Result(
	ctx context.Context, id string, options ...ResultOption,
) (JobResult, error) {
	return q.result(ctx, resultQuery{id: id}, options)
}

// ResultByMsgID is Result by the [MsgID] of the push, within the duplicate window of the queue.
func (q *Queue) ResultByMsgID(
	ctx context.Context, msgID string, options ...ResultOption,
) (JobResult, error) {
	return q.result(ctx, resultQuery{msgID: msgID}, options)
}

// resultQuery says which result to return, and when.
type resultQuery struct {
	id, msgID string // one of them
	wait      time.Duration
	follow    bool
}

// resultWait is how long one request waits for a result.
const resultWait = 30 * time.Second

// result returns the result of a job, and waits for it.
func (q *Queue) result(
	ctx context.Context, query resultQuery, options []ResultOption,
) (JobResult, error) {
	for _, option := range options {
		option(&query)
	}
	err := cmp.Or(wantUTF8(query.id, query.msgID), checkDuration("Wait", query.wait))
	if err != nil {
		return JobResult{}, err
	}

	end := time.Now().Add(query.wait)
	r, next, err := q.awaitResult(ctx, query, end)
	for link := 2; next.ID != "" && err == nil; link++ {
		q, query.id, query.msgID = &Queue{q.client, q.kind, next.Queue}, next.ID, ""
		if r, next, err = q.awaitResult(ctx, query, end); errors.Is(err, ErrNotFound) {
			text := "job %d of the chain, %s in queue %s, is not kept, or gone: %w"
			err = fmt.Errorf(text, link, query.id, q.name, err)
		}
	}
	return r, err
}

// awaitResult returns the result of a job, waits for it until that time and, to follow a chain,
// returns the job that it has pushed, zero for none.
func (q *Queue) awaitResult(
	ctx context.Context, query resultQuery, end time.Time,
) (r JobResult, next JobRef, err error) {
	for p := (pause{}); ; {
		left := time.Until(end)
		r, err = q.askResult(ctx, query, min(left, resultWait))
		if err == nil && query.follow && r.State == Done {
			next, err = q.pushedBy(ctx, r.ID)
		}

		switch {
		case err == nil && (left <= resultWait || r.State == Done || r.State == Dead):
			return r, next, nil
		case err == nil:
			p = pause{}
			query.id, query.msgID = r.ID, "" // a message id is forgotten earlier
		case left > 0 && ctx.Err() == nil &&
			(isPassing(err) || isAny(err, context.DeadlineExceeded, errInterrupted)):
			p.wait(ctx) // the answer may come later
		default:
			return JobResult{}, JobRef{}, err
		}
	}
}

// pushedBy returns the job that one which is done has pushed, zero for none.
func (q *Queue) pushedBy(ctx context.Context, id string) (JobRef, error) {
	item, state, err := q.Get(ctx, id)
	if err != nil {
		return JobRef{}, err
	}

	n := len(item.Successors) + item.MoreSuccessors
	if n > 1 || state != Done {
		text := "%w: job %s in queue %s is %s and has pushed %d"
		return JobRef{}, fmt.Errorf(text, ErrChain, id, q.name, state, n)
	}
	return append(item.Successors, JobRef{})[0], nil
}

// askResult makes one request, which waits for the result.
func (q *Queue) askResult(
	ctx context.Context, query resultQuery, wait time.Duration,
) (JobResult, error) {
	if wait < subjects.MinExpires {
		wait = 0
	}
	ctx, cancel := q.client.boundPop(ctx, wait)
	defer cancel()

	// A reply that was sent while the connection was away is lost: ask again once it is back.
	var on interrupts
	if nc := q.client.nc; nc != nil && wait > 0 {
		reconnected := nc.StatusChanged(nats.CONNECTED)
		defer nc.RemoveStatusListener(reconnected)
		on.reconnected = reconnected
	}

	subject, err := q.subject(subjects.Result)
	if err != nil {
		return JobResult{}, err
	}
	o := subjects.ResultOptions{ID: query.id, MsgID: query.msgID, Expires: wait}
	m := &nats.Msg{Subject: subject, Data: o.Encode()}
	reply, err := q.client.requestUnless(ctx, m, false, on)
	if err != nil {
		return JobResult{}, err
	}

	info, err := subjects.ParseJobInfo(reply.Header)
	if err != nil || info.ID == "" || info.State == "" {
		return JobResult{}, fmt.Errorf("%w: %.64q", ErrBadReply, reply.Data)
	}
	return JobResult{info, reply.Data}, nil
}
