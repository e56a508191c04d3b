package bridge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// sendPayload answers all but items and acknowledgements. The results are those of operations that
// share the reply.
func (c *clientReplier) sendPayload(r *dispatch.Request, op *fdbpq.Op, results []fdbpq.Result) error {
	e := c.b.encoders.Get().(*encoder)
	defer c.b.encoders.Put(e)

	q, result := r.Queue, &results[0]
	var payload []byte
	switch op.Kind {
	case fdbpq.OpPush:
		payload = e.pushed(q, results, c.endpoint.verb.several)
	case fdbpq.OpLen:
		payload = subjects.EncodeReply(subjects.Length{Queue: q.Name, Len: result.Len})
	case fdbpq.OpSettings, fdbpq.OpConfigure:
		payload = subjects.EncodeSettings(result.Settings)
	case fdbpq.OpInfo: // and OpSettings and OpConsumers
		payload = infoReply(q, results, c.b.options.Now()).Encode()
	case fdbpq.OpSetSchedule:
		if payload = result.Records[0].Value; payload == nil {
			payload = subjects.EncodeReply(subjects.Removed{Queue: q.Name, ID: op.Record})
		}
	case fdbpq.OpRemove, fdbpq.OpRelease:
		payload = subjects.EncodeReply(subjects.Removed{Queue: q.Name, ID: op.ID.String()})
	case fdbpq.OpMove:
		payload = subjects.EncodeReply(subjects.Moved{Queue: q.Name, ID: result.Item.ID.String(), Priority: op.Priority})
	case fdbpq.OpPurge:
		payload = subjects.EncodeReply(subjects.Purged{Purged: result.Len})
	}

	err := c.sendData(payload)
	// measure has refused what does not fit, but the server may carry less by now.
	if op.Kind == fdbpq.OpPush && errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: the items are in the queue, but their ids do not fit into a reply: %w",
			dispatch.ErrUnknownOutcome, err)
	}
	return err
}

// sendResults answers a request for several items with the result of each.
func (c *clientReplier) sendResults(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) error {
	reply := subjects.ItemResults{Queue: r.Queue.Name, Results: make([]subjects.ItemResult, len(results))}
	for i := range results {
		op, result, told := &ops[i], &results[i], &reply.Results[i]
		told.ID = op.ID.String()
		switch {
		case result.Err != nil:
			told.Failure = itemFailure(result.Err)
		case op.Kind == fdbpq.OpMove || op.Kind == fdbpq.OpRedriveItem:
			told.NewID, told.Home = result.Item.ID.String(), result.Home
		}
	}

	err := c.sendData(subjects.EncodeReply(&reply))
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: the items are changed, but the results do not fit into a reply: %w", dispatch.ErrUnknownOutcome, err)
	}
	if err != nil {
		c.b.replyFailed(err)
	}
	return err
}

// sendData answers with a payload, which may be too large for a message.
func (c *clientReplier) sendData(payload []byte) error {
	err := c.b.outbox.SendData(c.reply, payload)
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: the reply has %d bytes: %w", errTooLarge, len(payload), err)
	}
	return err
}

// infoReply is the reply to an info, which has the results of the queue's figures, its settings and
// its consumers.
func infoReply(q *dispatch.Queue, results []fdbpq.Result, now time.Time) *subjects.QueueInfo {
	info := results[0].Info
	reply := &subjects.QueueInfo{
		Queue: q.Name, Ready: info.Ready, Leased: info.Leased, Delayed: info.Delayed,
		PrioritiesMore: info.MorePriorities, Settings: *results[1].Settings,
		GroupsMore: info.MoreGroups, GroupsAtLimit: info.GroupsAtLimit,
		Consumers: jetstream.Describe(results[2].Records),
	}
	for _, g := range info.Groups {
		if reply.Groups == nil {
			reply.Groups = make(map[string]subjects.GroupCount, len(info.Groups))
		}
		name := strings.ToValidUTF8(g.Group, "\ufffd") // JSON has no others: groups may share one
		count := reply.Groups[name]
		reply.Groups[name] = subjects.GroupCount{Ready: count.Ready + g.Ready, Leased: count.Leased + g.Leased}
	}

	if q.Kind == subjects.Priority {
		reply.Priorities = make([]subjects.PriorityCount, len(info.Priorities))
		for i, p := range info.Priorities {
			reply.Priorities[i] = subjects.PriorityCount(p)
		}
	}
	if state, err := settings.ParseSourceState(results[1].Source); err == nil {
		reply.Source = &state
	}
	if !info.Oldest.IsZero() {
		age := max(0, now.Sub(info.Oldest))
		reply.OldestAge = &age
	}
	if !info.NextDue.IsZero() {
		reply.NextDue = &info.NextDue
	}
	return reply
}

// sendItem answers a pop, peek or get. An item that leaves no room for our headers is sent without
// them. The error wraps errTooLarge or errInternal if the item cannot be sent because of what it
// is.
func (c *clientReplier) sendItem(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.Get().(*encoder)
	defer c.b.encoders.Put(e)

	// What the outbox does if nobody receives the item.
	item := &result.Item
	m := nats.Msg{Subject: c.reply, Data: item.Value}
	var content outbox.Content
	if kind := op.Kind; kind == fdbpq.OpPop || kind == fdbpq.OpLease {
		content.Queue, content.Waits = r.Queue, r.WaitHandle()
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
			e.add(subjects.HeaderState, append(e.text, result.State.String()...))
		}
	}

	m.Header = e.headers()
	err := c.b.outbox.SendItem(&m, content)
	if errors.Is(err, nats.ErrMaxPayload) {
		m.Header = e.itemAlone(item)
		err = c.b.outbox.SendItem(&m, content)
	}

	if err == nil && op.Kind == fdbpq.OpLease {
		c.b.metrics.delivered(result.Lease.Deliveries)
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: item %s of queue %s is from when the server carried larger messages; %s: %w",
			errTooLarge, item.ID, r.Queue.Name, fate, err)
	case errors.Is(err, nats.ErrBadHeaderMsg):
		err = fmt.Errorf("%w: item %s of queue %s was not pushed over NATS and has headers that it cannot carry; %s: %w",
			errInternal, item.ID, r.Queue.Name, fate, err)
	}
	return err
}
