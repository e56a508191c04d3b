package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// session is a connection for the requests of one command to its queue. It is safe
// for concurrent use.
type session struct {
	nc    *nats.Conn
	queue target.Queue
	// usable ends, with the reason, once the server has refused something.
	usable context.Context
	end    context.CancelCauseFunc
}

// open connects to the servers, unless ctx ends first.
func (q *queue) open(ctx context.Context) (*session, error) {
	grammar, err := q.grammar()
	if err != nil {
		return nil, err
	}
	options, err := q.options()
	if err != nil {
		return nil, err
	}
	usable, end := context.WithCancelCause(context.Background())
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		end(err)
	}))
	nc, err := await(ctx, func() (*nats.Conn, error) { return q.connect(options) })
	if err != nil {
		end(err)
		return nil, err
	}
	c := client.New(nc, client.WithGrammar(grammar), client.WithTimeout(q.timeout))
	return &session{nc: nc, queue: target.New(c, q.fifo, q.name), usable: usable, end: end}, nil
}

// close ends the connection and everything that waits on it.
func (s *session) close() {
	s.end(nats.ErrConnectionClosed)
	s.nc.Close()
}

// push adds an item. Signals do not end it.
func (s *session) push(priority int64, m client.Message) (client.PushAck, error) {
	ack, err := s.queue.Push(s.usable, priority, m)
	return ack, s.explain(err, "the item may be in the queue")
}

// pop takes the item at one end. Signals do not end it.
func (s *session) pop(max bool, options ...client.PopOption) (*client.Item, error) {
	item, err := s.queue.Pop(s.usable, max, options...)
	return item, s.explain(err, "an item may have been taken and lost")
}

// longestPop is how long one request waits for an item. A signal lets it finish, because ending
// it could lose an item, so the wait for a longer time takes several.
const longestPop = time.Second

// await is pop, and waits for an item unless ctx ends.
func (s *session) await(ctx context.Context, last bool, wait time.Duration) (*client.Item, error) {
	if wait == 0 {
		return s.pop(last)
	}
	for until := time.Now().Add(wait); ; {
		left := time.Until(until)
		item, err := s.pop(last, client.Expires(min(max(left, time.Millisecond), longestPop)))
		switch {
		case !errors.Is(err, client.ErrEmpty) || left <= longestPop:
			return item, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
	}
}

// explain adds what the user can do about an error, and what an unknown outcome
// may mean.
func (s *session) explain(err error, unknown string) error {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return context.Cause(s.usable) // the server did not pass the request on
	case errors.Is(err, client.ErrUnknownOutcome):
		return fmt.Errorf("%w: %s", err, unknown)
	case errors.Is(err, client.ErrNoBridge):
		return fmt.Errorf("%w: is pqbridge running?", err)
	case errors.Is(err, client.ErrEmpty):
		return client.ErrEmpty
	default:
		return err
	}
}

// read connects and asks the queue something that changes nothing, so a signal
// ends it at once.
func read[T any](ctx context.Context, q *queue, ask func(context.Context, target.Queue) (T, error)) (T, error) {
	var none T
	s, err := q.open(ctx)
	if err != nil {
		return none, err
	}
	defer s.close()
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()
	answer, err := ask(s.usable, s.queue)
	return answer, s.explain(err, "")
}

// tooLarge is the error of a value that NATS does not carry.
func tooLarge(max int64) error {
	return fmt.Errorf("%w: the NATS server takes %d bytes at most, headers included", client.ErrTooLarge, max)
}

// grammar returns the subjects of the bridge.
func (a *app) grammar() (subjects.Grammar, error) {
	g, err := subjects.New(a.priorityPrefix, a.fifoPrefix)
	if err != nil {
		return g, usageError{err}
	}
	return g, nil
}
