package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"

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
}

// newReplier returns the replier of a request whose endpoint is not known yet.
func (b *Bridge) newReplier(reply string, from peers.Origin) *clientReplier {
	c, ok := b.repliers.Get().(*clientReplier)
	if !ok {
		c = new(clientReplier)
	}
	*c = clientReplier{b: b, endpoint: b.endpoints.unknown, reply: reply, from: from}
	return c
}

// free ends the use of a replier, once the client was told the end.
func (c *clientReplier) free() {
	c.from.Answered()
	b := c.b
	*c = clientReplier{}
	b.repliers.Put(c)
}

// Answer sends the results: one reply, or for a pop of several items one for each item and one that
// ends them.
func (c *clientReplier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	c.cancellable.forget()
	c.answer(r, ops, results)
	c.free()
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
	if err := results[0].Err; err != nil { // operations that share a reply fail together
		c.fail(r, err)
		return
	}

	c.b.metrics.noteDuplicates(results)
	var err error
	if sendAll := c.endpoint.verb.sendAll; sendAll != nil {
		err = sendAll(c, r, results)
	} else {
		err = c.send(r, &ops[0], &results[0])
	}

	// The client can be told what is wrong with the item or the reply, but not that NATS takes
	// none.
	switch {
	case err == nil:
		c.endpoint.done(r, nil)
	case errors.Is(err, ErrTooLarge) || errors.Is(err, ErrInternal) || errors.Is(err, ErrUnknownOutcome):
		c.fail(r, err)
	default:
		c.endpoint.done(r, failureOf(fmt.Errorf("%w: the reply could not be sent: %w", ErrUnavailable, err)))
	}
}

// answerList sends a list of queues, or the error if there is one.
func (c *clientReplier) answerList(r *dispatch.Request, list *subjects.QueueList, err error) {
	if err == nil {
		err = c.sendObject(r, list.Encode())
	}
	if err != nil {
		c.Fail(r, nil, err)
		return
	}

	c.endpoint.done(r, nil)
	c.free()
}

// acknowledge answers a request that has no lane.
func (c *clientReplier) acknowledge(r *dispatch.Request) {
	if err := c.b.outbox.SendData(c.reply, nil, c.endpoint); err != nil {
		c.b.replyFailed(err)
	}
	c.endpoint.done(r, nil)
	c.free()
}

// deliver sends the items of a pop of several, but leaves in the parcel what still fits there. It
// returns why there are not more items. It stops at the first item that cannot be sent; those after
// it go back, or their leases end.
func (c *clientReplier) deliver(p *parcel, ops []fdbpq.Op, results []fdbpq.Result) (failed error) {
	for i := range results {
		switch op, result := &ops[i], &results[i]; {
		case result.Err != nil:
			failed = cmp.Or(failed, result.Err)
		case failed != nil:
			c.unsent(p.r, op, result)
		case p.add(op, result):
		default: // there is no room left
			if failed = p.send(false); failed != nil {
				c.unsent(p.r, op, result)
			} else if !p.add(op, result) { // it needs a message of its own
				if failed = c.send(p.r, op, result); failed == nil {
					p.c.sent++
				}
			}
		}
	}
	return failed
}

// unsent returns an item to the queue, or ends its lease, because it cannot be sent.
func (c *clientReplier) unsent(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) {
	switch op.Kind {
	case fdbpq.OpPop:
		c.b.outbox.Restore(r.Queue, &result.Item, outbox.Unsendable)
	case fdbpq.OpLease:
		c.b.outbox.Release(r.Queue, &result.Lease.Token, outbox.Unsendable)
	}
}

// end sends the message that ends the items of a pop of several, which may be the parcel. err says
// why there are not more, nil if there are as many as were asked for.
func (c *clientReplier) end(p *parcel, err error) {
	r := p.r
	c.b.metrics.noteRefused(err)

	// The parcel itself can say that there are no more, but not why with an error.
	if p.n > 0 {
		last := err == nil || errors.Is(err, fdbpq.ErrEmpty)
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
	if err != nil && (c.sent == 0 || !errors.Is(err, fdbpq.ErrEmpty)) {
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
		c.free()
	}
	return err == nil
}

// Heartbeat says that a pop still waits. If nobody hears it, that ends the pop.
func (c *clientReplier) Heartbeat(r *dispatch.Request, wanted int) {
	m := nats.Msg{Subject: c.reply, Header: nats.Header{subjects.HeaderHeartbeat: {strconv.Itoa(wanted)}}}
	if err := c.b.outbox.SendItem(&m, nil, outbox.Content{Waits: r.Waiting()}); err != nil {
		c.b.replyFailed(err)
	}
}

// send sends the result of one operation. If that fails, a popped item goes back, and a lease ends.
func (c *clientReplier) send(r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error {
	if c.reply == "" {
		return nil
	}

	if op.Kind == fdbpq.OpLease {
		p := c.newParcel(r, 1)
		defer p.close()
		if p.add(op, result) {
			return p.send(false)
		}
	}

	send := c.endpoint.verb.send
	if op.Kind == fdbpq.OpLease {
		send = (*clientReplier).sendItem // also for +NXT
	}

	err := send(c, r, op, result)
	if err != nil {
		c.b.replyFailed(err)
		c.unsent(r, op, result)
	}
	return err
}

// Fail sends the error.
func (c *clientReplier) Fail(r *dispatch.Request, _ []fdbpq.Op, err error) {
	c.cancellable.forget()
	c.fail(r, c.cancellable.why(err))
	c.free()
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
