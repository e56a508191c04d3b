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
	rig    *rig
	prefix string // of its subjects
	value  []byte
}

func (r *rig) newQueue(s *service, name string) *queue {
	return &queue{
		PriorityQueue: client.New(r.conn, client.WithGrammar(s.grammar)).PriorityQueue(name),
		rig:           r,
		prefix:        s.subject(name, ""),
		value:         newValue(r.Payload),
	}
}

// newValue returns a value of that many bytes.
func newValue(payload int) []byte {
	value := make([]byte, payload)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	return value
}

// subject returns that of requests with a verb.
func (q *queue) subject(verb string) string { return q.prefix + verb }

// pushes returns the subjects of pushes, one for each priority.
func (q *queue) pushes() []string {
	all := make([]string, q.rig.Priorities)
	for priority := range all {
		all[priority] = q.subject("push." + strconv.Itoa(priority))
	}
	return all
}

// fill pushes until the queue has n items. It measures nothing.
func (q *queue) fill(ctx context.Context, n int) error { return q.fillBy(ctx, n, q.pushing()) }

// fillGroups is fill with items of many groups.
func (q *queue) fillGroups(ctx context.Context, n int) error {
	return q.fillBy(ctx, n, q.pushingGroups(q.pushes()...))
}

func (q *queue) fillBy(ctx context.Context, n int, pushing load) error {
	within, cancel := context.WithTimeout(ctx, grace)
	have, err := q.Len(within)
	cancel()
	if err == nil && int(have) < n {
		_, err = runLoad(ctx, pushing, limit{steps: n - int(have)})
	}
	if err != nil {
		return fmt.Errorf("filling a queue: %w", err)
	}
	return nil
}

// clients returns a load whose clients share the connections.
func (r *rig) clients(newActor func(nc *nats.Conn) actor) actors {
	all := make(actors, r.Clients)
	for i := range all {
		all[i] = newActor(r.conns[i%len(r.conns)])
	}
	return all
}

// requests is a load of clients that keep nothing from one step to the next.
func (r *rig) requests(do func(nc *nats.Conn, n int) error) load {
	return r.clients(func(nc *nats.Conn) actor {
		return actor{do: func(_ context.Context, n int) (int, error) { return 1, do(nc, n) }}
	})
}

// asking is a load of requests with one reply, which go to the subjects in turn.
func (r *rig) asking(payload []byte, to ...string) load {
	return r.requests(func(nc *nats.Conn, n int) error {
		_, err := ask(nc, to[n%len(to)], payload)
		return err
	})
}

func (q *queue) pushing() load { return q.rig.asking(q.value, q.pushes()...) }

// mixed pushes and pops in turn.
func (q *queue) mixed() load {
	push, pop := q.pushes(), q.subject("pop.min")
	return q.rig.requests(func(nc *nats.Conn, n int) error {
		subject, payload := pop, []byte(nil)
		if n%2 == 0 {
			subject, payload = push[n/2%len(push)], q.value
		}
		_, err := ask(nc, subject, payload)
		return err
	})
}

// Message ids are numbers, after what sets this benchmark apart from others on the same queue.
var (
	msgIDPrefix = strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	lastMsgID   atomic.Int64
)

// pushingOnce pushes with message ids.
func (q *queue) pushingOnce() load {
	push := q.pushes()
	return q.rig.requests(func(nc *nats.Conn, n int) error {
		id := msgIDPrefix + strconv.FormatInt(lastMsgID.Add(1), 10)
		m := &nats.Msg{
			Subject: push[n%len(push)], Data: q.value,
			Header: nats.Header{subjects.HeaderMsgID: {id}},
		}
		reply, err := nc.RequestMsg(m, grace)
		if err == nil {
			err = replyError(reply)
		}
		return err
	})
}

// leased is the payload of a pop that leases.
var leased = subjects.PopOptions{Lease: true, AckWait: leaseTime}.Encode()

// leasing leases an item and acknowledges it with another request.
func (q *queue) leasing() load {
	pop := q.subject("pop.min")
	return q.rig.requests(func(nc *nats.Conn, _ int) error {
		lease, err := askLease(nc, pop, leased)
		if err == nil {
			_, err = ask(nc, lease, []byte(payloadAck))
		}
		return err
	})
}

// chaining acknowledges an item and leases the next in one request.
func (q *queue) chaining() load {
	pop := q.subject("pop.min")
	return q.rig.clients(func(nc *nats.Conn) actor {
		var lease string // of the item that the client has
		return actor{
			do: func(context.Context, int) (_ int, err error) {
				subject, payload := pop, leased
				if lease != "" {
					subject, payload = lease, []byte(payloadNext)
				}
				lease, err = askLease(nc, subject, payload)
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

// ask sends a request and returns its reply, unless that is an error.
func ask(nc *nats.Conn, subject string, payload []byte) (*nats.Msg, error) {
	reply, err := nc.Request(subject, payload, grace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	return reply, replyError(reply)
}

// askLease returns the subject that acknowledges the item it is sent.
func askLease(nc *nats.Conn, subject string, payload []byte) (string, error) {
	item, err := ask(nc, subject, payload)
	if err != nil {
		return "", err
	}
	if item.Reply == "" {
		return "", fmt.Errorf("%s: a leased item has no reply subject", item.Subject)
	}
	return item.Reply, nil
}

// replyError returns the error that a reply carries, or nil.
func replyError(m *nats.Msg) error {
	switch failure := subjects.ErrorFromHeaders(m.Header); {
	case failure == nil:
		return nil
	case failure.Code == subjects.CodeNotFound:
		return ErrEmpty
	default:
		return failure
	}
}
