package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Delivery is a leased item. Nobody else gets it until the lease ends. End the lease with Ack or
// Next when the item is done, with Nak or Snooze to have it come back, and with Term to make it a
// dead letter.
//
// These methods, and Extend, return [ErrLeaseLost] once the item is settled or somebody else has
// it, so a late call does no harm. They still count after Until, as long as nobody else has got the
// item. After [ErrUnknownOutcome], call the method again: ErrLeaseLost then most likely means that
// the first call counted.
//
// The fields of LeaseInfo are zero if the message left no room for them in the reply.
type Delivery struct {
	Item
	subjects.LeaseInfo

	result result // for its acknowledgement

	queue      *Queue // has no name if Client.Delivery made this
	ackSubject string
}

// delivery returns a received item as a Delivery.
func (q *Queue) delivery(r *received) (*Delivery, error) {
	if r.ack == "" {
		err := fmt.Errorf("a leased item without a reply subject: %.64q", r.message.Value)
		return nil, badReply(err)
	}
	return &Delivery{
		Item:       *r.item(),
		LeaseInfo:  r.headers.Lease,
		queue:      q,
		ackSubject: r.ack,
	}, nil
}

// Delivery returns a delivery with this AckSubject, so that a process can acknowledge an item that
// another one leased. Its Item is zero.
func (c *Client) Delivery(ackSubject string) *Delivery {
	return &Delivery{queue: &Queue{client: c}, ackSubject: ackSubject}
}

// AckSubject returns the subject of acknowledgements of this delivery, for [Client.Delivery] in
// another process. It ends with the token of the lease: anybody who has it can acknowledge the
// item.
func (d *Delivery) AckSubject() string { return d.ackSubject }

// ackInfix stands before the token in the subject of acknowledgements.
const ackInfix = ".ack."

// token returns the token of the lease. A client in another account than the bridge may not see it.
func (d *Delivery) token() (token string, ok bool) {
	i := strings.LastIndex(d.ackSubject, ackInfix)
	if i < 0 || strings.Contains(d.ackSubject[i+len(ackInfix):], ".") {
		return "", false
	}
	return d.ackSubject[i+len(ackInfix):], true
}

// ackPrefix returns the subject of acknowledgements up to the token, or all of it if it has none.
func (d *Delivery) ackPrefix() string {
	token, _ := d.token()
	return strings.TrimSuffix(d.ackSubject, token)
}

// SetResult says what the job returns, for [Queue.Result]: any bytes, even none, and their type,
// such as "text/plain", or "" for none. Ack, Next and [Client.AckAll] send it. It is stored if the
// job is kept (see [Keep]), and ignored otherwise. Call SetResult before them, and do not change
// the bytes until they return.
func (d *Delivery) SetResult(value []byte, contentType string) {
	d.result.set(value, contentType)
}

// Then has the acknowledgement of this delivery push an item to a queue of the same kind. Ack, Next
// and [Client.AckAll] send it. If the acknowledgement counts, the item is in that queue, at the end
// of its priority; otherwise nothing was pushed. No limit of that queue refuses it. Up to 256 calls
// count, each for one item. In a FIFO queue the priority must be 0.
//
// The setting [Settings.Next] of the queue of this delivery must name that queue, even if it is the
// same one, and [MsgID], [Unique] and [Weight] are not possible: Ack returns [ErrBadRequest] if
// that is wrong, and the lease goes on. Then itself returns ErrBadRequest for headers that NATS
// cannot carry, and for too many items. The [Joiner] of an item that does not wait any more is left
// out.
func (d *Delivery) Then(
	queue string, priority int64, value []byte, options ...PushOption,
) error {
	return d.result.push(queue, priority, Message{Value: value}, options)
}

// Ack removes the item: it is done. It returns nil also if an earlier acknowledgement of this lease
// counted and the job was kept.
//
// Errors: [ErrLeaseLost], [ErrBadRequest] for a result that is larger than the bridge takes, 64 KiB
// by default, after which the lease goes on, [ErrTooLarge] for one that exceeds a message of NATS,
// and the errors of any request.
func (d *Delivery) Ack(ctx context.Context) error {
	err := d.settle(ctx, subjects.Ack{Kind: subjects.AckDone})
	if isDone(err) {
		return nil
	}
	return err
}

// Nak ends the lease and returns the item to its old place, after a delay of 0 to ten years, or
// after [Backoff]. If this was the last delivery that the settings of the queue allow, the item
// moves to the dead-letter queue instead.
//
// Errors: as for Ack, [ErrBadRequest] for the delay, and [ErrTooLarge] if there was no room beside
// other requests: try again.
func (d *Delivery) Nak(ctx context.Context, delay time.Duration, options ...NakOption) error {
	a := subjects.Ack{Kind: subjects.AckNak}
	if delay != Backoff {
		a.Delay, a.HasDelay = delay, true
	}
	for _, option := range options {
		option(&a)
	}

	return d.settle(ctx, a)
}

// Snooze is [Delivery.Nak] without counting the delivery: Deliveries will be the same next time.
func (d *Delivery) Snooze(ctx context.Context, delay time.Duration) error {
	a := subjects.Ack{Kind: subjects.AckNak, Delay: delay, HasDelay: true, Snooze: true}
	return d.settle(ctx, a)
}

// Term moves the item to the dead-letter queue with the reason, which may be "" and is cut at 256
// bytes. Its errors are as for Nak.
func (d *Delivery) Term(ctx context.Context, reason string) error {
	a := subjects.Ack{Kind: subjects.AckTerm, Reason: cut(reason, maxSentReason)}
	return d.settle(ctx, a)
}

// Extend restarts the lease with its old length, and returns the new end. It does not change Until.
// Its errors are as for Nak.
func (d *Delivery) Extend(ctx context.Context) (time.Time, error) {
	return d.extend(ctx, ackMessage(subjects.Ack{Kind: subjects.AckProgress}, d, nil))
}

// Progress is [Delivery.Extend], and says how far the job is: up to 1,024 bytes, which
// [Queue.Result] and Items return as they are until the next Progress or the end of the lease. If
// they are text, use UTF-8. Each call writes the beginning of the item's value again, so once a
// second is often enough.
//
// Errors: [ErrBadRequest] for more bytes, after which the lease goes on as before, and as for Nak.
func (d *Delivery) Progress(ctx context.Context, progress []byte) (time.Time, error) {
	ack := string(subjects.Ack{Kind: subjects.AckProgress}.Encode())
	return d.extend(ctx, &nats.Msg{
		Subject: d.ackSubject,
		Header:  nats.Header{subjects.HeaderAck: {ack}},
		Data:    progress,
	})
}

// extend sends an acknowledgement that restarts the lease, and returns the new end.
func (d *Delivery) extend(ctx context.Context, m *nats.Msg) (time.Time, error) {
	reply, err := d.send(ctx, m)
	if err != nil {
		return time.Time{}, err
	}

	info, err := subjects.ParseItemHeaders(reply.Header)
	if err != nil || info.Lease.Until.IsZero() {
		return time.Time{}, badReply(fmt.Errorf("%.64q", reply.Data))
	}
	return info.Lease.Until, nil
}

// settle sends an acknowledgement of this delivery alone.
func (d *Delivery) settle(ctx context.Context, a subjects.Ack) error {
	_, err := d.send(ctx, ackMessage(a, d, nil))
	return err
}

// send sends an acknowledgement.
func (d *Delivery) send(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	if d.ackSubject == "" {
		return nil, badRequest("no subject of acknowledgements: want one as AckSubject returned it")
	}
	return d.queue.client.request(ctx, m, true)
}

// Next acknowledges the item and leases the next one from the same end of the queue, in one round
// trip and one transaction. Without options, the new lease is as long as the old one. With
// [Expires], the item is acknowledged at once, before Next waits.
//
// Errors:
//
//   - [ErrEmpty]: the item is acknowledged; there was no other, or max_leased does not allow one,
//     or an earlier acknowledgement of this lease counted and the job was kept.
//   - [ErrTooLarge]: the item is acknowledged; the next one exceeds [MaxBytes], cannot be sent, or
//     had no room beside other requests.
//   - [ErrLeaseLost]: nothing was leased.
//   - [ErrInternal]: the item may or may not be acknowledged. Call Ack to be sure.
//   - [ErrNoHeartbeat], and the errors of any request.
func (d *Delivery) Next(ctx context.Context, options ...LeaseOption) (next *Delivery, err error) {
	// It leases anyway, and without Lease an AckWait of 0 means the length of this lease.
	a := subjects.Ack{Kind: subjects.AckNext, Next: popOptions(0, options)}
	list, err := d.fetchNext(ctx, a, nil)
	if len(list) > 0 {
		next = list[0]
	}
	return next, err
}

// fetchNext sends an acknowledgement of this and others that leases, and returns the leased items.
func (d *Delivery) fetchNext(
	ctx context.Context, a subjects.Ack, others []*Delivery,
) ([]*Delivery, error) {
	p := &popRequest{acks: d.ackPrefix(), mustLease: true}
	p.message = func(o subjects.PopOptions) *nats.Msg {
		a.Next = o
		return ackMessage(a, d, others)
	}

	if d.queue.name != "" {
		p.cancels, _ = d.queue.subject(subjects.Pop) // a queue with a valid name
	}

	list, err := fetchPop(ctx, d.queue.client, p, a.Next, d.queue.delivery)
	if isDone(err) && len(others) == 0 {
		return nil, ErrEmpty // what the earlier acknowledgement leased comes back
	}
	return list, err
}

// ackMessage returns the request that acknowledges a lease and others, whose tokens are in a.Also.
// If it ends the leases, it carries the results of the jobs, and what they push.
func ackMessage(a subjects.Ack, d *Delivery, others []*Delivery) *nats.Msg {
	ack := a.Encode()
	m := &nats.Msg{Subject: d.ackSubject, Data: ack}
	if a.Kind != subjects.AckDone && a.Kind != subjects.AckNext {
		return m
	}

	if len(others) == 0 && len(d.result.next) == 0 {
		if d.result.given {
			m.Header, m.Data = d.result.headers(), d.result.value
			m.Header[subjects.HeaderAck] = []string{string(ack)}
		}
		return m
	}

	var data []byte
	frames := d.appendFrames(&data, 0, "")
	for _, other := range others {
		parent, _ := other.token()
		frames += other.appendFrames(&data, frames, parent)
	}
	if frames > 0 {
		m.Data = data
		m.Header = nats.Header{
			subjects.HeaderAck:    {string(ack)},
			subjects.HeaderFrames: {strconv.Itoa(frames)},
		}
	}
	return m
}

// appendFrames appends what the job pushes, and its result, if it has one, to data, behind so many
// frames. It returns how many it has appended. The parent is as for appendSuccessors.
func (d *Delivery) appendFrames(data *[]byte, behind int, parent string) int {
	*data = d.result.appendSuccessors(*data, behind, parent)
	if !d.result.given {
		return len(d.result.next)
	}
	h := d.result.headers()
	token, _ := d.token()
	h[subjects.HeaderToken] = []string{token}
	block, _ := subjects.AppendHeaders(nil, h) // fails only for bad names of headers
	*data = subjects.AppendFrame(*data, subjects.Frame{Headers: block, Value: d.result.value})
	return len(d.result.next) + 1
}

// isDone reports whether an acknowledgement was refused because an earlier one of the same lease
// has counted.
func isDone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == subjects.ReasonDone
}
