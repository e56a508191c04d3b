package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// clientReplier answers one request of a client, whichever bridge received it. It is a
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
	c.cancellable.forget()
	c.answer(r, ops, results)
	c.ended()
}

func (c *clientReplier) answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	if acks := dispatch.LeadingAcks(ops); acks < len(ops) { // +NXT: the pops say all there is to say
		ops, results = ops[acks:], results[acks:]
	}

	if c.batch > 1 {
		p := c.newParcel(r, len(results))
		defer p.close()
		c.end(p, c.deliver(p, ops, results))
		return
	}
	if r.Each {
		c.endpoint.items.Observe(float64(len(results)))
		c.replied(r, c.sendResults(r, ops, results))
		return
	}
	for i := range results { // operations that share a reply fail together
		if err := results[i].Err; err != nil {
			c.fail(r, err)
			return
		}
	}

	c.b.metrics.noteDuplicates(results)
	err := c.send(r, &ops[0], results)
	c.replied(r, err)
}

// answerData answers a request that has no lane.
func (c *clientReplier) answerData(r *dispatch.Request, data []byte, err error) {
	if err != nil {
		c.Fail(r, nil, err)
		return
	}

	if err = c.sendData(data); err != nil {
		c.b.replyFailed(err)
	}
	c.replied(r, err)
	c.ended()
}

// inspect has the inspector answer the request.
func (c *clientReplier) inspect(r *dispatch.Request) error {
	answered := *r // so that r itself stays off the heap
	return c.b.inspector.answer(c.inspection, func(payload []byte, err error) {
		answered.Answered = time.Now()
		c.answerData(&answered, payload, err)
	})
}

// replied counts a request whose reply was sent or, with an error, could not be. The client can be
// told what is wrong with the item or the reply, but not that NATS takes none.
func (c *clientReplier) replied(r *dispatch.Request, err error) {
	switch {
	case err == nil:
		c.endpoint.done(r, nil)
	case errors.Is(err, errTooLarge) || errors.Is(err, errInternal) || errors.Is(err, dispatch.ErrUnknownOutcome):
		c.fail(r, err)
	default:
		c.endpoint.done(r, failureOf(fmt.Errorf("%w: the reply could not be sent: %w", dispatch.ErrUnavailable, err)))
	}
}

// deliver sends the items of a pop of several, but leaves in the parcel what still fits there. It
// returns why there are not more items. It stops at the first item that cannot be sent; those after
// it go back, or their leases end.
func (c *clientReplier) deliver(p *parcel, ops []fdbpq.Op, results []fdbpq.Result) (failed error) {
	now := c.b.options.Now()
	for i := range results {
		switch op, result := &ops[i], &results[i]; {
		case result.Err != nil:
			failed = cmp.Or(failed, result.Err)
		case leaseOver(op, result, now):
			failed = cmp.Or(failed, errLeaseOver)
			c.b.outbox.Return(p.r.Queue, op.Kind, result, outbox.Late)
		case failed != nil:
			c.b.outbox.Return(p.r.Queue, op.Kind, result, outbox.Unsendable)
		case p.add(op, result):
		default: // there is no room left
			if failed = p.send(false); failed != nil {
				c.b.outbox.Return(p.r.Queue, op.Kind, result, outbox.Unsendable)
			} else if !p.add(op, result) { // it needs a message of its own
				if failed = c.send(p.r, op, results[i:i+1]); failed == nil {
					p.c.sent++
				}
			}
		}
	}
	return failed
}

// leaseOver reports whether an item was leased, and the lease is over: somebody else may have the
// item by now. The store may have taken too long, or the process may have stood still.
func leaseOver(op *fdbpq.Op, result *fdbpq.Result, now time.Time) bool {
	return op.Kind == fdbpq.OpLease && !result.Lease.Until.After(now)
}

// end sends the message that ends the items of a pop of several, which may be the parcel. err says
// why there are not more, nil if there are as many as were asked for.
func (c *clientReplier) end(p *parcel, err error) {
	r := p.r
	c.b.metrics.noteRefused(err)

	// The parcel itself can say that there are no more, but not why with an error.
	if p.n > 0 {
		last := err == nil || foundNothing(err)
		if failed := p.send(last); failed != nil {
			err = failed
		} else if last {
			c.endpoint.items.Observe(float64(c.sent))
			c.endpoint.done(r, nil)
			return
		}
	}

	c.endpoint.items.Observe(float64(c.sent))
	end := nats.Msg{Subject: c.reply, Header: nats.Header{}}
	var f *failure
	if err != nil && (c.sent == 0 || !foundNothing(err)) {
		f = failureOf(err)
		maps.Copy(end.Header, f.header)
	}
	end.Header[subjects.HeaderBatchCount] = []string{strconv.Itoa(c.sent)}

	// A pop that got items has not failed.
	if c.sent > 0 {
		f = nil
	}
	c.endpoint.done(r, f)
	c.b.outbox.Send(&end)
}

// foundNothing reports whether a pop ended because there is nothing, not because of a limit.
func foundNothing(err error) bool {
	return classify(err).code == subjects.CodeNotFound
}

// Deliver sends items of a pop that goes on waiting for more. If one cannot be sent, that ends the
// pop.
func (c *clientReplier) Deliver(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) (more bool) {
	p := c.newParcel(r, len(results))
	err := c.deliver(p, ops, results)
	if err == nil {
		err = p.send(false)
	}
	if err != nil {
		c.end(p, err)
	}
	p.close()

	if err != nil {
		c.cancellable.forget()
		c.ended()
	}
	return err == nil
}

// Heartbeat says that a pop still waits. If nobody hears it, that ends the pop.
func (c *clientReplier) Heartbeat(r *dispatch.Request, wanted int) {
	m := nats.Msg{Subject: c.reply, Header: nats.Header{subjects.HeaderHeartbeat: {strconv.Itoa(wanted)}}}
	if err := c.b.outbox.SendItem(&m, outbox.Content{Waits: r.WaitHandle()}); err != nil {
		c.b.replyFailed(err)
	}
}

// send sends the result of one operation, or of several that share a reply. If that fails, a popped
// item goes back, and a lease ends.
func (c *clientReplier) send(r *dispatch.Request, op *fdbpq.Op, results []fdbpq.Result) error {
	if c.reply == "" {
		return nil
	}

	result := &results[0]
	if leaseOver(op, result, c.b.options.Now()) {
		c.b.outbox.Return(r.Queue, op.Kind, result, outbox.Late)
		return errLeaseOver
	}
	if op.Kind == fdbpq.OpLease {
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
		err = c.sendPayload(r, op, results)
	}
	if err != nil {
		c.b.replyFailed(err)
		c.b.outbox.Return(r.Queue, op.Kind, result, outbox.Unsendable)
	}
	return err
}

// Fail sends the error.
func (c *clientReplier) Fail(r *dispatch.Request, _ []fdbpq.Op, err error) {
	c.cancellable.forget()
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

	m := nats.Msg{Subject: c.reply, Header: f.header}
	if verb := c.endpoint.verb; verb == nil || verb.op == fdbpq.OpPush { // nil: it may be meant as a push
		m.Data = f.payload()
	}
	c.b.outbox.Send(&m)
}
