package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// batchItems is the number of items in the requests for several.
	batchItems = 100
	// leaseTime is longer than any step.
	leaseTime = time.Minute

	payloadAck  = "+ACK"
	payloadNext = "+NXT"
)

// queue is one queue of a service, with the requests to it that are measured.
type queue struct {
	*client.PriorityQueue
	rig   *rig
	value []byte

	push            []string // subjects, for each priority
	popMin, popMax  string
	peekMin, pushes string
}

// newQueue builds the requests.
func (r *rig) newQueue(s *service, name string) (*queue, error) {
	q := &queue{
		PriorityQueue: client.New(r.conn, client.WithGrammar(s.grammar)).PriorityQueue(name),
		rig:           r,
		value:         newValue(r.Payload),
		push:          make([]string, r.Priorities),
	}
	for priority := range q.push {
		var err error
		q.push[priority], err = s.grammar.Build(subjects.Request{
			Kind: subjects.Priority, Verb: subjects.Push, Queue: name,
			Priority: int64(priority), HasPriority: true,
		})
		if err != nil {
			return nil, err
		}
	}

	for verb, subject := range map[subjects.Verb]*string{
		subjects.PopMin: &q.popMin, subjects.PopMax: &q.popMax, subjects.PeekMin: &q.peekMin,
		subjects.PushBatch: &q.pushes,
	} {
		var err error
		if *subject, err = s.subject(name, verb); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// newValue returns a value of that many bytes.
func newValue(payload int) []byte {
	value := make([]byte, payload)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	return value
}

// fill pushes until the queue has n items. It measures nothing.
func (q *queue) fill(ctx context.Context, n int) error {
	within, cancel := context.WithTimeout(ctx, grace)
	have, err := q.Len(within)
	cancel()
	if err == nil && int(have) < n {
		_, err = runLoad(ctx, q.pushing(), limit{steps: n - int(have)})
	}
	if err != nil {
		return fmt.Errorf("filling a queue: %w", err)
	}
	return nil
}

// limitItems sets max_items.
func (q *queue) limitItems(ctx context.Context, most int64) error {
	_, err := q.Configure(ctx, client.Settings{MaxItems: most})
	return err
}

// clients returns a load whose clients share the connections.
func (r *rig) clients(newActor func(nc *nats.Conn) actor) actors {
	all := make(actors, r.Clients)
	for i := range all {
		all[i] = newActor(r.conns[i%len(r.conns)])
	}
	return all
}

// asking is a load of requests with one reply, which go to the subjects in turn.
func (r *rig) asking(payload []byte, to ...string) load {
	return r.clients(func(nc *nats.Conn) actor {
		return actor{do: func(_ context.Context, n int) (int, error) {
			_, err := ask(nc, to[n%len(to)], payload)
			return 1, err
		}}
	})
}

func (q *queue) pushing() load { return q.rig.asking(q.value, q.push...) }

// mixed pushes and pops in turn.
func (q *queue) mixed() load {
	return q.rig.clients(func(nc *nats.Conn) actor {
		return actor{do: func(_ context.Context, n int) (int, error) {
			subject, payload := q.popMin, []byte(nil)
			if n%2 == 0 {
				subject, payload = q.push[n/2%len(q.push)], q.value
			}
			_, err := ask(nc, subject, payload)
			return 1, err
		}}
	})
}

// Message ids are numbers, after what sets this benchmark apart from others on the same queue.
var (
	msgIDPrefix = strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	lastMsgID   atomic.Int64
)

// pushingOnce pushes with message ids.
func (q *queue) pushingOnce() load {
	return q.rig.clients(func(nc *nats.Conn) actor {
		return actor{do: func(_ context.Context, n int) (int, error) {
			id := msgIDPrefix + strconv.FormatInt(lastMsgID.Add(1), 10)
			m := &nats.Msg{
				Subject: q.push[n%len(q.push)], Data: q.value,
				Header: nats.Header{subjects.HeaderMsgID: {id}},
			}
			reply, err := nc.RequestMsg(m, grace)
			if err == nil {
				err = replyError(reply)
			}
			return 1, err
		}}
	})
}

// pushingBatches pushes many items with each request.
func (q *queue) pushingBatches() load {
	var frames []byte
	for i := range batchItems {
		item := subjects.Frame{Priority: int64(i % len(q.push)), Value: q.value}
		frames = subjects.AppendFrame(frames, item)
	}
	return q.rig.clients(func(nc *nats.Conn) actor {
		return actor{do: func(context.Context, int) (int, error) {
			_, err := ask(nc, q.pushes, frames)
			return batchItems, err
		}}
	})
}

// leasing leases an item and acknowledges it with another request.
func (q *queue) leasing() load {
	options := subjects.PopOptions{Lease: true, AckWait: leaseTime}.Encode()
	return q.rig.clients(func(nc *nats.Conn) actor {
		return actor{do: func(context.Context, int) (int, error) {
			item, err := ask(nc, q.popMin, options)
			if err == nil {
				err = checkLeased(item)
			}
			if err == nil {
				_, err = ask(nc, item.Reply, []byte(payloadAck))
			}
			return 1, err
		}}
	})
}

// chaining acknowledges an item and leases the next in one request.
func (q *queue) chaining() load {
	options := subjects.PopOptions{Lease: true, AckWait: leaseTime}.Encode()
	return q.rig.clients(func(nc *nats.Conn) actor {
		var lease string // of the item that the client has
		return actor{
			do: func(context.Context, int) (int, error) {
				subject, payload := q.popMin, options
				if lease != "" {
					subject, payload = lease, []byte(payloadNext)
				}
				lease = ""
				item, err := ask(nc, subject, payload)
				if err == nil {
					err = checkLeased(item)
				}
				if err == nil {
					lease = item.Reply
				}
				return 1, err
			},
			end: func(context.Context) (err error) {
				if lease != "" {
					_, err = ask(nc, lease, []byte(payloadAck))
				}
				lease = ""
				return err
			},
		}
	})
}

// poppingBatches pops many items with each request, in frames if the service likes.
func (q *queue) poppingBatches() load {
	return q.receiving(subjects.PopOptions{Batch: batchItems, Frames: true})
}

// leasingBatches is sent a message for each item, and acknowledges each with a message.
func (q *queue) leasingBatches() load {
	return q.receiving(subjects.PopOptions{Batch: batchItems, Lease: true, AckWait: leaseTime})
}

// receiving is a load of requests with several replies.
func (q *queue) receiving(o subjects.PopOptions) load {
	return q.rig.clients(func(nc *nats.Conn) actor {
		b := &batchClient{nc: nc, subject: q.popMin, payload: o.Encode(), acks: o.Lease}
		return actor{do: b.do, end: b.end}
	})
}

// batchClient has a subscription for the replies to its requests.
type batchClient struct {
	nc      *nats.Conn
	subject string
	payload []byte
	acks    bool               // each item
	inbox   *nats.Subscription // nil before the first request of a turn
}

func (b *batchClient) do(context.Context, int) (items int, err error) {
	if b.inbox == nil {
		if b.inbox, err = b.nc.SubscribeSync(b.nc.NewInbox()); err != nil {
			return 0, err
		}
	}
	if err := b.nc.PublishRequest(b.subject, b.inbox.Subject, b.payload); err != nil {
		return 0, err
	}

	for received := 0; ; {
		m, err := b.inbox.NextMsg(grace)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", b.subject, err)
		}
		items, ends, err := b.receive(m)
		if err != nil {
			return 0, err
		}
		received += items
		if !ends {
			continue
		}
		if sent, _, err := subjects.ParseBatchEnd(m.Header); err != nil || sent != received {
			return 0, fmt.Errorf("%s: %d of %d items arrived (%v)", b.subject, received, sent, err)
		}
		return received, nil
	}
}

// receive takes a reply, and returns how many items it has and whether it is the last.
func (b *batchClient) receive(m *nats.Msg) (items int, ends bool, err error) {
	framed, err := subjects.FramesOf(m.Header)
	if err != nil {
		return 0, false, err
	}
	sent, ends, err := subjects.ParseBatchEnd(m.Header)
	if err != nil {
		return 0, false, err
	}
	if ends && sent > 0 || framed > 0 { // with some items, why there are not more does not matter
		return framed, ends, nil
	}

	if err := replyError(m); err != nil || ends {
		return 0, ends, err
	}
	if b.acks {
		if err := checkLeased(m); err != nil {
			return 0, false, err
		}
		err = b.nc.Publish(m.Reply, []byte(payloadAck))
	}
	return 1, false, err
}

// end unsubscribes, so that a late reply is nobody's.
func (b *batchClient) end(context.Context) error {
	if b.inbox == nil {
		return nil
	}
	err := b.inbox.Unsubscribe()
	b.inbox = nil
	return err
}

// ask sends a request and returns its reply, unless that is an error.
func ask(nc *nats.Conn, subject string, payload []byte) (*nats.Msg, error) {
	reply, err := nc.Request(subject, payload, grace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	return reply, replyError(reply)
}

func checkLeased(item *nats.Msg) error {
	if item.Reply == "" {
		return fmt.Errorf("%s: a leased item has no reply subject", item.Subject)
	}
	return nil
}

// replyError returns the error that a reply carries, or nil.
func replyError(m *nats.Msg) error {
	if len(m.Header) == 0 {
		return nil
	}
	switch failure := subjects.ErrorFromHeaders(m.Header); {
	case failure == nil:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nats.ErrNoResponders
		}
		return nil
	case failure.Code == subjects.CodeNotFound:
		return ErrEmpty
	default:
		return failure
	}
}
