package requests

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
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// replier answers one request of a client, even if another bridge received it. It implements
// dispatch.WaitingReplier. The last call, which tells the client the end, frees the replier for
// another request.
type replier struct {
	h        *Handler
	endpoint Endpoint
	verb     *verb        // nil unless the subject was parsed
	from     peers.Origin // the peer that forwarded the request, if any

	reply  string // subject for the answer; "" if nobody waits for one
	batch  int    // how many items it asked for, if several
	frames bool   // items come in frames, several in a message
	sent   int    // items so far

	cancellable *cancellable // nil unless it has an id
	inspection  *inspection  // nil unless the inspector answers
	audit       *auditEntry  // nil unless it goes into the log
}

// newReplier returns the replier of a request whose endpoint is not known yet.
func (h *Handler) newReplier(reply string, from peers.Origin) *replier {
	c := h.repliers.Get().(*replier)
	*c = replier{h: h, endpoint: h.config.Unknown, reply: reply, from: from}
	return c
}

// ended is called once the client has been told the end. It tells the peer that forwarded the
// request, if any, and frees the replier.
func (c *replier) ended() {
	c.from.NoteAnswered()
	h := c.h
	*c = replier{}
	h.repliers.Put(c)
}

// Answer sends the results: one reply, or for a pop of several items a reply for each and one that
// ends them.
func (c *replier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	if c.cancellable != nil { // first: once it has the answer, the client may use the id again
		c.cancellable.remove()
	}
	defer c.ended()

	// After a +NXT, the next item says that the acknowledgement succeeded.
	if acks := dispatch.LeadingAcks(ops); acks < len(ops) {
		ops, results = ops[acks:], results[acks:]
	}

	if c.batch > 1 {
		f := c.newFramedReply(r, len(results))
		defer f.close()
		c.end(f, c.deliver(f, ops, results))
		return
	}

	for i := range results {
		// Operations on several items succeed or fail one by one. Others that share a reply fail
		// together.
		if err := results[i].Err; err != nil && !r.Each {
			c.fail(r, err)
			return
		}
		if results[i].Duplicate {
			c.h.config.Duplicate()
		}
	}

	if r.Each {
		c.endpoint.Items(len(results))
	}
	if c.audit != nil {
		c.audited(changedItems(r, &ops[0], results), nil)
	}
	c.replied(r, c.send(r, ops, results))
}

// replied counts a request after an attempt to send its reply. The client is told of an error about
// the item or the reply, but not that NATS refuses to send anything.
func (c *replier) replied(r *dispatch.Request, err error) {
	switch {
	case err == nil:
		c.endpoint.Done(r, nil)
	case errors.Is(err, errTooLarge), errors.Is(err, errInternal),
		errors.Is(err, dispatch.ErrUnknownOutcome):
		c.fail(r, err)
	default:
		err = fmt.Errorf("%w: the reply could not be sent: %w", dispatch.ErrUnavailable, err)
		c.endpoint.Done(r, Failure(err))
	}
}

// send sends the result of one operation, or of several that share a reply. If that fails, a popped
// item goes back, and a lease ends.
func (c *replier) send(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) error {
	if c.reply == "" {
		return nil
	}

	op, result := &ops[0], &results[0]
	if op.Kind == fdbpq.OpLease && leaseOver(op, result, c.h.config.Now()) {
		c.h.config.Outbox.Return(r.Queue, op.Kind, result, outbox.Late)
		return errLeaseOver
	}

	if op.Kind == fdbpq.OpLease && c.frames { // for its token
		f := c.newFramedReply(r, 1)
		defer f.close()
		if f.add(op, result) {
			return f.send(false)
		}
	}

	var err error
	switch op.Kind {
	case fdbpq.OpPop, fdbpq.OpLease, fdbpq.OpPeek, fdbpq.OpGet:
		err = c.sendItem(r, op, result)
	case fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpTerm:
		var h nats.Header
		if r.Unkept != nil {
			h = nats.Header{}
			setNotKept(h, r)
		}
		err = c.sendData(h, nil)
	case fdbpq.OpExtend:
		until := result.Lease.Until.Format(subjects.TimeLayout)
		m := nats.Msg{Subject: c.reply, Header: nats.Header{
			subjects.HeaderLeaseUntil: {until},
			subjects.HeaderAckWait:    {strictjson.DurationText(result.LeaseLength())},
		}}
		err = c.h.config.Outbox.SendItem(&m, outbox.Content{})
	default:
		err = c.sendPayload(r, ops, results)
	}

	if err != nil {
		c.h.config.ReplyFailed(err)
		c.h.config.Outbox.Return(r.Queue, op.Kind, result, outbox.Unsendable)
	}

	return err
}

// setNotKept sets the headers that say which results are not kept, and which values. The first
// message of a reply has them.
func setNotKept(h nats.Header, r *dispatch.Request) {
	if u := r.Unkept; u != nil {
		setNumbers(h, subjects.HeaderNotKept, u.Results)
		setNumbers(h, subjects.HeaderValueDropped, u.Values)
		r.Unkept = nil
	}
}

// leaseOver reports whether an item was leased and its lease is over, so that somebody else may
// have the item by now. The store may have taken too long, or the process may have stood still.
func leaseOver(op *fdbpq.Op, result *fdbpq.Result, now time.Time) bool {
	return op.Kind == fdbpq.OpLease && !result.Lease.Until.After(now)
}

// sendItem answers a pop, peek or get. An item that leaves no room for our headers is sent without
// them. The error wraps errTooLarge or errInternal if the item cannot be sent because of what it
// is.
func (c *replier) sendItem(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	e := c.h.encoders.Get().(*encoder)
	defer c.h.encoders.Put(e)

	// If nobody receives the item, the outbox returns content. fate says the same for people.
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
		e.leasedBy(r.Queue, op, result)
		m.Reply = c.h.config.Grammar.Ack(r.Queue.Kind, r.Queue.Name, result.Lease.Token.String())
	default:
		fate = "it stays in the queue"
		e.item(r.Queue, item)
		if op.Kind == fdbpq.OpGet {
			e.found(r.Queue.Kind, result)
		}
	}

	m.Header = e.headers()
	setNotKept(m.Header, r)
	err := c.h.config.Outbox.SendItem(&m, content)
	if errors.Is(err, nats.ErrMaxPayload) {
		m.Header = e.itemAlone(item) // without our headers it may fit
		err = c.h.config.Outbox.SendItem(&m, content)
	}

	switch {
	case err == nil && op.Kind == fdbpq.OpLease:
		c.h.config.Delivered(result.Lease.Deliveries)
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: item %s of queue %s was stored when max_payload was larger, and no "+
			"longer fits; %s: %w", errTooLarge, item.Job(), r.Queue.Name, fate, err)
	case errors.Is(err, nats.ErrBadHeaderMsg):
		err = fmt.Errorf("%w: item %s of queue %s was not pushed over NATS and has headers that "+
			"NATS cannot carry; %s: %w", errInternal, item.Job(), r.Queue.Name, fate, err)
	}

	return err
}

// sendData answers with headers, nil for none, and a payload, which may be too large for a message.
func (c *replier) sendData(h nats.Header, payload []byte) (err error) {
	if h == nil {
		err = c.h.config.Outbox.SendData(c.reply, payload)
	} else {
		m := nats.Msg{Subject: c.reply, Header: h, Data: payload}
		err = c.h.config.Outbox.SendItem(&m, outbox.Content{})
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: the reply has %d bytes: %w", errTooLarge, len(payload), err)
	}
	return err
}

// Relay passes on an answer of another bridge to a pop that was forwarded there. It reports whether
// that was the last one, and then whether some before it are missing.
func Relay(r *dispatch.Request, m *nats.Msg) (ended, lost bool) {
	c := r.Replier.(*replier)
	passed := nats.Msg{Subject: c.reply, Header: m.Header, Data: m.Data}
	content := outbox.Content{Relayed: m.Reply}
	if err := c.h.config.Outbox.SendItem(&passed, content); err != nil {
		c.h.config.ReplyFailed(err)
		c.h.config.Outbox.ReturnAll(&content, outbox.Unsendable)
		r.Answered = time.Now()
		c.Fail(r, nil, relayError(err))
		return true, false
	}

	end, failed := m.Header[subjects.HeaderBatchCount], m.Header[subjects.HeaderErrorCode] != nil
	if n, err := strconv.Atoi(m.Header.Get(subjects.HeaderFrames)); err == nil {
		c.sent += n
	} else if !subjects.IsHeartbeat(m.Header) && end == nil {
		c.sent++
	}

	if c.batch > 1 {
		lost = end != nil && end[0] != strconv.Itoa(c.sent)
		return end != nil || failed, lost
	}
	return !subjects.IsHeartbeat(m.Header), false
}

// relayError returns the error of an answer that could not be passed on: err says why.
func relayError(err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: the NATS server of this client carries less than the item needs, "+
			"which goes back into the queue: give all servers the same max_payload", errTooLarge)
	}
	return fmt.Errorf("%w: the answer could not be sent, and what was popped goes back: %w",
		dispatch.ErrUnavailable, err)
}

// Heartbeat says that a pop still waits. A heartbeat that nobody hears ends the pop.
func (c *replier) Heartbeat(r *dispatch.Request, wanted int) {
	header := nats.Header{subjects.HeaderHeartbeat: {strconv.Itoa(wanted)}}
	m := nats.Msg{Subject: c.reply, Header: header}
	if err := c.h.config.Outbox.SendItem(&m, outbox.Content{Waits: r.WaitHandle()}); err != nil {
		c.h.config.ReplyFailed(err)
	}
}

// Fail sends the error.
func (c *replier) Fail(r *dispatch.Request, _ []fdbpq.Op, err error) {
	if c.cancellable != nil {
		c.cancellable.remove()
		err = c.cancellable.why(err)
	}
	c.fail(r, err)
	c.ended()
}

func (c *replier) fail(r *dispatch.Request, err error) {
	if c.batch > 1 && c.reply != "" {
		c.end(c.newFramedReply(r, 0), err)
		return
	}

	f := Failure(err)
	c.audited(0, err)
	c.h.config.Refused(err)
	c.endpoint.Done(r, f)
	if c.reply == "" {
		c.h.config.Unanswered()
		c.h.config.Warn("a request without a usable reply subject failed",
			"endpoint", c.endpoint.String(), "error", err)
		return
	}

	// Publishers look for errors in the payload. A subject that cannot be parsed may have been
	// meant as a push.
	m := nats.Msg{Subject: c.reply, Header: failureHeaders(f, err)}
	setNotKept(m.Header, r)
	if c.verb == nil || c.verb.op == fdbpq.OpPush {
		m.Data = f.Payload()
	}

	c.h.config.Outbox.Send(&m)
}
