package bridge

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// clientReplier answers one request of a client, even if another bridge received it. It is a
// dispatch.WaitingReplier. The last call, which tells the client the end, frees it for another
// request.
type clientReplier struct {
	b        *Bridge
	endpoint *endpoint
	from     peers.Origin // the peer that has forwarded the request, if one has

	reply  string // subject for the answer; "" if nobody waits for one
	batch  int    // how many items it asked for, if several
	frames bool   // items come in frames, several in a message
	sent   int    // items so far

	cancellable *cancellable // nil unless it has an id
	inspection  *inspection  // nil unless the inspector answers
}

// newReplier returns the replier of a request whose endpoint is not known yet.
func (b *Bridge) newReplier(reply string, from peers.Origin) *clientReplier {
	c := b.repliers.Get().(*clientReplier)
	*c = clientReplier{b: b, endpoint: b.endpoints.unknown, reply: reply, from: from}
	return c
}

// ended is called once the client was told the end. It tells the peer that has forwarded the
// request, if one has, and frees the replier.
func (c *clientReplier) ended() {
	c.from.NoteAnswered()
	b := c.b
	*c = clientReplier{}
	b.repliers.Put(c)
}

// Answer sends the results: one reply, or for a pop of several items one for each item and one that
// ends them.
func (c *clientReplier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	c.cancellable.remove() // first: once it has the answer, the client may use the id again
	c.answer(r, ops, results)
	c.ended()
}

func (c *clientReplier) answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	// After a +NXT, what was leased says that the acknowledgement succeeded.
	if acks := dispatch.LeadingAcks(ops); acks < len(ops) {
		ops, results = ops[acks:], results[acks:]
	}

	if c.batch > 1 {
		c.answerSeveral(r, ops, results)
		return
	}

	// Operations on several items succeed or fail one by one.
	if r.Each {
		c.endpoint.items.Observe(float64(len(results)))
		c.replied(r, c.send(r, ops, results))
		return
	}

	for i := range results { // operations that share a reply fail together
		if err := results[i].Err; err != nil {
			c.fail(r, err)
			return
		}
	}

	c.b.metrics.noteDuplicates(results)
	c.replied(r, c.send(r, ops, results))
}

// replied counts a request whose reply was sent or, with an error, could not be sent. The client is
// told of an error about the item or the reply, but cannot be told that NATS refuses to send
// anything.
func (c *clientReplier) replied(r *dispatch.Request, err error) {
	switch {
	case err == nil:
		c.endpoint.done(r, nil)
	case errors.Is(err, errTooLarge), errors.Is(err, errInternal),
		errors.Is(err, dispatch.ErrUnknownOutcome):
		c.fail(r, err)
	default:
		err = fmt.Errorf("%w: the reply could not be sent: %w", dispatch.ErrUnavailable, err)
		c.endpoint.done(r, failureOf(err))
	}
}

// send sends the result of one operation, or of several that share a reply. If that fails, a popped
// item goes back, and a lease ends.
func (c *clientReplier) send(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) error {
	if c.reply == "" {
		return nil
	}

	// Somebody else may have an item whose lease is over.
	op, result := &ops[0], &results[0]
	if leaseOver(op, result, c.b.options.Now()) {
		c.b.outbox.Return(r.Queue, op.Kind, result, outbox.Late)
		return errLeaseOver
	}

	if op.Kind == fdbpq.OpLease && c.frames { // for its token
		p := c.newParcel(r, 1)
		defer p.close()
		if p.add(op, result) {
			return p.send(false)
		}
	}

	var err error
	switch op.Kind {
	case fdbpq.OpPop, fdbpq.OpLease, fdbpq.OpPeek, fdbpq.OpGet:
		err = c.sendItem(r, op, result)
	case fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpTerm:
		err = c.sendData(nil)
	case fdbpq.OpExtend:
		until := result.Lease.Until.Format(subjects.TimeLayout)
		m := nats.Msg{Subject: c.reply, Header: nats.Header{subjects.HeaderLeaseUntil: {until}}}
		err = c.b.outbox.SendItem(&m, outbox.Content{})
	default:
		err = c.sendPayload(r, ops, results)
	}

	if err != nil {
		c.b.replyFailed(err)
		c.b.outbox.Return(r.Queue, op.Kind, result, outbox.Unsendable)
	}

	return err
}

// leaseOver reports whether an item was leased, and the lease is over: somebody else may have the
// item by now. The store may have taken too long, or the process may have stood still.
func leaseOver(op *fdbpq.Op, result *fdbpq.Result, now time.Time) bool {
	return op.Kind == fdbpq.OpLease && !result.Lease.Until.After(now)
}

// sendItem answers a pop, peek or get. An item that leaves no room for our headers is sent without
// them. The error wraps errTooLarge or errInternal if the item cannot be sent because of what it
// is.
func (c *clientReplier) sendItem(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	e := c.b.encoders.Get().(*encoder)
	defer c.b.encoders.Put(e)

	// content says what the outbox returns if nobody receives the item. fate says the same for
	// people.
	item := &result.Item
	m := nats.Msg{Subject: c.reply, Data: item.Value}
	var content outbox.Content
	var fate string
	switch op.Kind {
	case fdbpq.OpPop: // the outbox gets copies: the results belong to the dispatcher
		popped := []fdbpq.Item{*item}
		content = outbox.Content{Queue: r.Queue, Popped: popped, Waits: r.WaitHandle()}
		fate = "it goes back into the queue"
		e.item(r.Queue, item)
	case fdbpq.OpLease:
		leased := []fdbpq.Lease{result.Lease}
		content = outbox.Content{Queue: r.Queue, Leased: leased, Waits: r.WaitHandle()}
		fate = "its lease ends"
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
		m.Header = e.itemAlone(item) // without our headers it may fit
		err = c.b.outbox.SendItem(&m, content)
	}

	switch {
	case err == nil && op.Kind == fdbpq.OpLease:
		c.b.metrics.delivered(result.Lease.Deliveries)
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: item %s of queue %s was stored when max_payload was larger, and no "+
			"longer fits; %s: %w", errTooLarge, item.ID, r.Queue.Name, fate, err)
	case errors.Is(err, nats.ErrBadHeaderMsg):
		err = fmt.Errorf("%w: item %s of queue %s was not pushed over NATS and has headers that "+
			"it cannot carry; %s: %w", errInternal, item.ID, r.Queue.Name, fate, err)
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

// Heartbeat says that a pop still waits. If nobody hears it, that ends the pop.
func (c *clientReplier) Heartbeat(r *dispatch.Request, wanted int) {
	header := nats.Header{subjects.HeaderHeartbeat: {strconv.Itoa(wanted)}}
	m := nats.Msg{Subject: c.reply, Header: header}
	if err := c.b.outbox.SendItem(&m, outbox.Content{Waits: r.WaitHandle()}); err != nil {
		c.b.replyFailed(err)
	}
}

// Fail sends the error.
func (c *clientReplier) Fail(r *dispatch.Request, _ []fdbpq.Op, err error) {
	c.cancellable.remove()
	c.fail(r, c.cancellable.why(err))
	c.ended()
}

func (c *clientReplier) fail(r *dispatch.Request, err error) {
	if c.batch > 1 && c.reply != "" {
		c.end(c.newParcel(r, 0), err)
		return
	}

	f := failureOf(err)
	c.b.metrics.noteRefused(err)
	c.endpoint.done(r, f)
	if c.reply == "" {
		c.b.metrics.unanswered.Inc()
		c.b.quiet.unanswered.warn("a request without a usable reply subject failed",
			"endpoint", c.endpoint.name, "error", err)
		return
	}

	// Publishers look for errors in the payload. A subject that cannot be parsed may have been
	// meant as a push.
	m := nats.Msg{Subject: c.reply, Header: f.header}
	if verb := c.endpoint.verb; verb == nil || verb.op == fdbpq.OpPush {
		m.Data = f.Payload()
	}

	c.b.outbox.Send(&m)
}
