package bridge

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// sendPushed answers a push.
func (c *clientReplier) sendPushed(r *dispatch.Request, _ *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.get()
	defer c.b.encoders.put(e)
	return c.b.outbox.SendData(c.reply, e.pushed(r.Queue, result), c.endpoint)
}

// sendPushedBatch answers a batch of pushes.
func (c *clientReplier) sendPushedBatch(r *dispatch.Request, results []fdbpq.Result) error {
	if c.reply == "" {
		return nil
	}

	e := c.b.encoders.get()
	defer c.b.encoders.put(e)
	err := c.b.outbox.SendData(c.reply, e.pushedBatch(r.Queue, results), c.endpoint)
	if err != nil {
		c.b.replyFailed(err)
	}

	// measure has refused what does not fit, but the server may carry less by now.
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: the items are in the queue, but their ids do not fit into a reply: %w", ErrUnknownOutcome, err)
	}
	return err
}

// sendLength answers a len.
func (c *clientReplier) sendLength(r *dispatch.Request, _ *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.get()
	defer c.b.encoders.put(e)
	return c.b.outbox.SendData(c.reply, e.length(r.Queue, result.Len), c.endpoint)
}

// sendSettings answers a config.
func (c *clientReplier) sendSettings(r *dispatch.Request, _ *fdbpq.Op, result *fdbpq.Result) error {
	return c.b.outbox.SendData(c.reply, subjects.EncodeSettings(result.Settings), c.endpoint)
}

// sendInfo answers an info: the results are those of an OpInfo and an OpSettings.
func (c *clientReplier) sendInfo(r *dispatch.Request, results []fdbpq.Result) error {
	if err := results[1].Err; err != nil {
		return fmt.Errorf("%w: %w", ErrInternal, err)
	}

	info := results[0].Info
	reply := subjects.QueueInfo{
		Queue: r.Queue.Name, Ready: info.Ready, Leased: info.Leased, Delayed: info.Delayed,
		PrioritiesMore: info.MorePriorities, Settings: *results[1].Settings,
	}

	if r.Queue.Kind == subjects.Priority {
		reply.Priorities = make([]subjects.PriorityCount, len(info.Priorities))
		for i, p := range info.Priorities {
			reply.Priorities[i] = subjects.PriorityCount(p)
		}
	}

	if !info.Oldest.IsZero() {
		age := max(0, c.b.options.Now().Sub(info.Oldest))
		reply.OldestAge = &age
	}
	if !info.NextDue.IsZero() {
		reply.NextDue = &info.NextDue
	}
	return c.sendObject(r, reply.Encode())
}

// sendObject answers with an object, which may be too large for a message.
func (c *clientReplier) sendObject(r *dispatch.Request, payload []byte) error {
	err := c.b.outbox.SendData(c.reply, payload, c.endpoint)
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: the reply has %d bytes: %w", ErrTooLarge, len(payload), err)
	}
	if err != nil {
		c.b.replyFailed(err)
	}
	return err
}

// sendManaged answers what changes items other than with a push, pop or acknowledgement, and a
// rank.
func (c *clientReplier) sendManaged(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	var payload []byte
	switch op.Kind {
	case fdbpq.OpRemove:
		payload = subjects.EncodeReply(subjects.Removed{Queue: r.Queue.Name, ID: op.ID.String()})
	case fdbpq.OpMove:
		payload = subjects.EncodeReply(subjects.Moved{Queue: r.Queue.Name, ID: result.Item.ID.String(), Priority: op.Priority})
	case fdbpq.OpRank:
		payload = subjects.EncodeReply(subjects.Ranked{Rank: result.Rank, AtLeast: result.RankAtLeast})
	case fdbpq.OpPurge:
		payload = subjects.EncodeReply(subjects.Purged{Purged: result.Progress.Done})
	case fdbpq.OpRedrive:
		payload = subjects.EncodeReply(subjects.Redriven{Redriven: result.Progress.Done})
	}
	return c.b.outbox.SendData(c.reply, payload, c.endpoint)
}

// sendItem answers a pop, peek or get. An item that leaves no room for our headers is sent without
// them. The error wraps ErrTooLarge or ErrInternal if the item cannot be sent because of what it
// is.
func (c *clientReplier) sendItem(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.get()
	defer c.b.encoders.put(e)

	// What the outbox does if nobody receives the item.
	item := &result.Item
	m := nats.Msg{Subject: c.reply, Data: item.Value}
	var content outbox.Content
	if kind := op.Kind; kind == fdbpq.OpPop || kind == fdbpq.OpLease {
		content.Queue, content.Waits = r.Queue, r.Waiting()
	}

	var fate string
	switch op.Kind {
	case fdbpq.OpPop:
		content.Item, fate = *item, "it goes back into the queue"
		e.item(r.Queue, item)
	case fdbpq.OpLease:
		token := result.Lease.Token // the results belong to the dispatcher
		content.Lease, fate = &token, "its lease ends"
		e.leased(r.Queue, item, &result.Lease)
		m.Reply = c.b.grammar.Ack(r.Queue.Kind, r.Queue.Name, result.Lease.Token.String())
	default:
		fate = "it stays in the queue"
		e.item(r.Queue, item)
		if op.Kind == fdbpq.OpGet {
			e.add(subjects.HeaderState, result.State.String())
		}
	}

	m.Header = e.headers()
	err := c.b.outbox.SendItem(&m, c.endpoint, content)
	if errors.Is(err, nats.ErrMaxPayload) {
		m.Header = e.itemAlone(item)
		err = c.b.outbox.SendItem(&m, c.endpoint, content)
	}

	if err == nil && op.Kind == fdbpq.OpLease {
		c.b.metrics.delivered(result.Lease.Deliveries)
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

// sendAcked answers an acknowledgement.
func (c *clientReplier) sendAcked(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	if op.Kind != fdbpq.OpExtend {
		return c.b.outbox.SendData(c.reply, nil, c.endpoint)
	}
	until := result.Lease.Until.Format(subjects.TimeLayout)
	m := nats.Msg{Subject: c.reply, Header: nats.Header{subjects.HeaderLeaseUntil: {until}}}
	return c.b.outbox.SendItem(&m, c.endpoint, outbox.Content{})
}
