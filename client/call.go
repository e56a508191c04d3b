package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// callKeep is how long the result of a Call is kept by default.
const callKeep = time.Hour

// Call pushes a job, waits until a worker has done it, and returns what the Work returned. It is a
// function call that outlasts crashes: of workers, because their leases end, and of bridges and
// NATS servers, because Call asks again. The priority is as for Push.
//
// Call waits until ctx ends, even if that has no deadline, and returns at most a second later. If
// the job is in the queue by then, it goes on, and the error is a [*NotDone] with its ID. The
// result has the ID too, and with any other error of a job whose push is known to have counted.
//
// To outlast a crash of the caller too, give the call a [MsgID], and call again with the same one
// within the duplicate window of the queue, two minutes by default: the second call waits for the
// job of the first. Otherwise Call chooses a message id, so that it may repeat a push whose outcome
// is unknown. It tries for up to 30 s to push.
//
// The result is kept for an hour after the job is done, or as long as [Keep] says.
//
// Errors: [*JobFailed] if the job has become a dead letter; [ErrNotFound] if it was removed, has
// expired or was popped, so that nobody knows what became of it; [*NotDone] if ctx ends while the
// job is in the queue, or the connection is closed; and if it is not known to be in the queue, the
// errors of [Producer.PushAsync] and of a push, with the error of ctx if that has ended. Of these,
// only [ErrUnknownOutcome] leaves open whether there is a job.
func (q *Queue) Call(ctx context.Context, priority int64, value []byte,
	options ...PushOption) (JobResult, error) {
	return q.CallMsg(ctx, priority, Message{Value: value}, options...)
}

// CallMsg is [Queue.Call] for a message with headers.
func (q *Queue) CallMsg(ctx context.Context, priority int64, m Message,
	options ...PushOption) (JobResult, error) {
	producer, err := q.NewProducer(ProducerOptions{MaxItems: 1})
	if err != nil {
		return JobResult{}, err
	}
	defer producer.Close(ctx)

	own := func(h nats.Header) { maps.Copy(h, m.Headers) }
	m = Message{Value: m.Value}.With(Keep(callKeep), MsgID(rand.Text()), own).With(options...)
	push, err := producer.PushAsync(ctx, priority, m)
	if err != nil {
		return JobResult{}, err
	}

	ack, err := push.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		_ = producer.Close(ctx) // ends the push, so its outcome is there
		if ack, err = push.Wait(ctx); err != nil {
			err = fmt.Errorf("%w: %w", endOf(ctx), err)
		}
	}
	if err != nil {
		return JobResult{}, err
	}

	r, err := q.result(ctx, resultQuery{id: ack.ID, wait: settings.MaxDelay}, nil)
	r.ID = ack.ID
	switch {
	case err == nil:
		return r, r.Err()
	case errors.Is(err, ErrNotFound):
		return r, fmt.Errorf("the result of job %s: %w", ack.ID, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", endOf(ctx), err)
	}
	return r, &NotDone{ID: ack.ID, err: attempted{err}}
}

// NotDone is the error of a [Queue.Call] whose job is in the queue, but not known to be done. The
// job goes on. Do not push it again: [Queue.Result] finds it by its ID.
//
// errors.Is finds why Call waits no longer, such as context.DeadlineExceeded, but never
// [ErrNotSent]: the job was pushed.
type NotDone struct {
	// ID is the id of the job.
	ID string

	err error
}

// Error implements error.
func (e *NotDone) Error() string {
	return fmt.Sprintf("job %s is not known to be done: %v", e.ID, e.err)
}

// Unwrap returns why Call waits no longer.
func (e *NotDone) Unwrap() error { return e.err }
