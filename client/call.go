package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
)

// callKeep is how long the result of a Call is kept by default.
const callKeep = time.Hour

// Call pushes a job, waits until a worker has done it, and returns what the Work returned. It is a
// function call that outlasts crashes: of workers, because their leases end, and of bridges and
// NATS servers, because Call asks again. The priority is as for Push.
//
// Call waits until ctx ends, even if that has no deadline. The job goes on. Then, and after any
// other error, the result has its ID if the push is known to have counted, for [Queue.Result].
//
// To outlast a crash of the caller too, give the call a [MsgID], and call again with the same one
// within the duplicate window of the queue, two minutes by default: the second call waits for the
// job of the first. Otherwise Call chooses a message id, so that it may repeat a push whose outcome
// is unknown. It tries for up to 30 s to push.
//
// The result is kept for an hour after the job is done, or as long as [Keep] says.
//
// Errors: [*JobFailed] if the job has become a dead letter; [ErrNotFound] if it was removed, has
// expired or was popped, so that nobody knows what became of it; the errors of [Producer.PushAsync]
// and of a push; the error of ctx; and the errors of any request.
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
	if err != nil {
		return JobResult{}, err
	}

	query := resultQuery{id: ack.ID, wait: untilEnd}
	r, err := q.result(ctx, query, nil)
	if r.ID = ack.ID; err != nil {
		return r, fmt.Errorf("the result of job %s: %w", ack.ID, err)
	}
	return r, r.Err()
}
