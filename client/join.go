package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// JoinerRef names a joiner: a job that waits for its members. See [Queue.All].
type JoinerRef = subjects.Joiner

// Joined is what has become of the members of a joiner: see [Item].
type Joined = subjects.Joined

// defaultJoin is how long a joiner waits for its members at most, unless [Join] says it.
const defaultJoin = 24 * time.Hour

// Join makes an item a joiner: it is delayed until all its members have ended, but at most for that
// time, one second to ten years. [Delay], [At] and [TTL] are not possible beside it, and its value
// and headers have at most 64 KiB. Its [Item] has Joined. Without members it is ready at once.
func Join(d time.Duration) PushOption { return header(subjects.HeaderJoin, d.String()) }

// Joiner makes an item a member of a joiner that waits: in the same queue, or in one that the
// setting Next of the member's queue names. The member has ended once it is acknowledged, a dead
// letter, removed, popped or expired. A push to a joiner that does not wait fails with [ErrJoined].
// [Unique] is not possible beside it.
func Joiner(of JoinerRef) PushOption { return header(subjects.HeaderJoiner, of.String()) }

// JoinerRef names the pushed job as a joiner.
func (a PushAck) JoinerRef() JoinerRef { return JoinerRef{Queue: a.Queue, ID: a.ID} }

// JoinerRef names this job as the joiner that it was. Items finds its members with
// JoinerRef().String() as the header Pq-Joiner.
func (j *Job) JoinerRef() JoinerRef { return JoinerRef{Queue: j.Queue, ID: j.ID} }

// withJoin adds [Join] to options that may have one.
func withJoin(options []PushOption) []PushOption {
	return append([]PushOption{Join(defaultJoin)}, options...)
}

// All pushes a joiner and its members in one transaction: the joiner is ready once all of them have
// ended. It waits for a day at most, unless its message has [Join]. The acknowledgements of the
// members are in their order. With [MsgID] in all of them, or in none, All can be repeated after
// [ErrUnknownOutcome].
//
// Members in other queues, more than 4,095, or some that only turn up later, are pushed with
// [Joiner]: by a job that is a member itself, or after [Queue.OpenJoin].
//
// Errors: as [Queue.PushBatch]; the joiner is item 0.
func (q *Queue) All(ctx context.Context, joiner PushItem, members ...PushItem) (
	joinerAck PushAck, memberAcks []PushAck, err error,
) {
	items := []PushItem{joiner}
	if items[0].Headers[subjects.HeaderJoin] == nil {
		items[0].Message = joiner.With(Join(defaultJoin))
	}
	for n, m := range members {
		if m.Headers[subjects.HeaderJoiner] != nil {
			return PushAck{}, nil, badRequest("member %d is one of another joiner: want none", n)
		}
		m.Message = m.With(Joiner(JoinerRef{Frame: 0}))
		items = append(items, m)
	}
	acks, err := q.PushBatch(ctx, items)
	if err != nil {
		return PushAck{}, nil, err
	}
	return acks[0], acks[1:], nil
}

// OpenJoin is a joiner to which members may be added until it is closed.
type OpenJoin struct {
	JoinerRef
	queue *Queue
	guard string // the id of a member that only holds the joiner back
}

// OpenJoin pushes a joiner that waits until Close, and then until its members have ended. If Close
// is not called within the given time, one second to ten years, because this program dies, the
// joiner waits for its members alone. The options are of the joiner.
//
// Errors: as [Queue.PushBatch].
func (q *Queue) OpenJoin(ctx context.Context, open time.Duration, priority int64, m Message,
	options ...PushOption) (*OpenJoin, error) {
	joiner := PushItem{Priority: priority, Message: m.With(options...)}
	guard := Message{}.With(Delay(settings.MaxDelay), header(subjects.HeaderTTL, open.String()))
	if id := joiner.Headers.Get(subjects.HeaderMsgID); id != "" { // all or none have one
		guard = guard.With(MsgID(fmt.Sprintf("guard %x", sha256.Sum256([]byte(id)))))
	}
	ack, members, err := q.All(ctx, joiner, PushItem{Priority: priority, Message: guard})
	if err != nil {
		return nil, err
	}
	return &OpenJoin{ack.JoinerRef(), q, members[0].ID}, nil
}

// Close says that no more members will come. It may be called again, and changes nothing once the
// time to be open is over.
//
// Errors: those of any request.
func (j *OpenJoin) Close(ctx context.Context) error {
	err := j.queue.Remove(ctx, j.guard)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// thenJoin adds a joiner to what the acknowledgement pushes, and returns how [Joiner] names it.
func (r *result) thenJoin(
	queue string, priority int64, value []byte, options []PushOption,
) (JoinerRef, error) {
	ref := JoinerRef{Frame: len(r.next)}
	return ref, r.push(queue, priority, Message{Value: value}, withJoin(options))
}

// ThenJoin is [Delivery.Then] for a joiner. It waits for a day at most, unless the options have
// [Join]. Further calls of Then with the returned [JoinerRef] add its members; elsewhere it means
// nothing.
func (d *Delivery) ThenJoin(
	queue string, priority int64, value []byte, options ...PushOption,
) (JoinerRef, error) {
	return d.result.thenJoin(queue, priority, value, options)
}

// ThenJoin is [Job.Then] for a joiner: see [Delivery.ThenJoin].
func (j *Job) ThenJoin(
	queue string, priority int64, value []byte, options ...PushOption,
) (JoinerRef, error) {
	return j.outcome().thenJoin(queue, priority, value, options)
}
