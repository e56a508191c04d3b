package bridge

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// clientReplier answers the clients of one endpoint. It is a dispatch.Replier.
type clientReplier struct {
	b        *Bridge
	endpoint *endpoint
}

// Answer sends the result of the request's one operation. If that fails, it counts the
// error, sends it if the item is at fault, and puts a popped item back.
func (c *clientReplier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	result := &results[0]
	if result.Err != nil {
		c.fail(r, result.Err)
		return
	}
	var err error
	if r.Reply != "" {
		err = c.endpoint.verb.send(c, r, &ops[0], result)
	}
	if err == nil {
		c.endpoint.done(r, nil)
		return
	}
	c.b.replyFailed(err)
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrInternal) {
		c.fail(r, err) // what is wrong is the item, so the client can be told
	} else {
		c.endpoint.done(r, failureOf(fmt.Errorf("%w: the reply could not be sent: %w", ErrUnavailable, err)))
	}
	if ops[0].Kind == fdbpq.OpPop {
		c.b.restorer.restore(r.Queue, &result.Item)
	}
}

// Fail sends the error.
func (c *clientReplier) Fail(r *dispatch.Request, _ []fdbpq.Op, err error) { c.fail(r, err) }

func (c *clientReplier) fail(r *dispatch.Request, err error) {
	f := failureOf(err)
	c.endpoint.done(r, f)
	if r.Reply == "" {
		c.b.metrics.unanswered.Inc()
		c.b.quiet.unanswered.warn("a request without a usable reply subject failed",
			"endpoint", c.endpoint.name, "error", err)
		return
	}
	c.b.outbox.trySend(&nats.Msg{Subject: r.Reply, Header: f.header})
}

// sendPushed answers a push.
func (c *clientReplier) sendPushed(r *dispatch.Request, _ *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.get()
	defer c.b.encoders.put(e)
	return c.b.outbox.sendData(r.Reply, e.pushed(r.Queue, &result.Item.ID), c.endpoint)
}

// sendLength answers a len.
func (c *clientReplier) sendLength(r *dispatch.Request, _ *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.get()
	defer c.b.encoders.put(e)
	return c.b.outbox.sendData(r.Reply, e.length(r.Queue, result.Len), c.endpoint)
}

// sendItem answers a pop or peek. An item that leaves no room for our headers is sent
// without them. The error wraps ErrTooLarge or ErrInternal if the item cannot be sent
// because of what it is.
func (c *clientReplier) sendItem(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.get()
	defer c.b.encoders.put(e)
	item := &result.Item
	popped, fate := r.Queue, "it goes back into the queue"
	if op.Kind != fdbpq.OpPop {
		popped, fate = nil, "it stays in the queue"
	}
	m := nats.Msg{Subject: r.Reply, Header: e.item(r.Queue, item), Data: item.Value}
	err := c.b.outbox.sendItem(&m, c.endpoint, popped, item)
	if errors.Is(err, nats.ErrMaxPayload) {
		m.Header = e.itemAlone(item)
		err = c.b.outbox.sendItem(&m, c.endpoint, popped, item)
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: item %s of queue %s is from when the server carried larger messages; %s: %w",
			ErrTooLarge, item.ID, r.Queue.Name, fate, err)
	case errors.Is(err, nats.ErrBadHeaderMsg):
		err = fmt.Errorf("%w: item %s of queue %s was not pushed over NATS and has headers that it cannot carry; %s: %w",
			ErrInternal, item.ID, r.Queue.Name, fate, err)
	}
	return err
}

// replyFailed counts a reply that NATS did not accept.
func (b *Bridge) replyFailed(err error) {
	b.metrics.replyFailures.Inc()
	if b.stopping.Load() {
		b.unsent.Add(1)
	}
	b.quiet.replies.warn("a reply could not be sent", "error", err)
}
