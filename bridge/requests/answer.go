package requests

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

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

// Deliver sends items of a pop that goes on waiting for more. An item that cannot be sent ends the
// pop.
func (c *replier) Deliver(
	r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result,
) (more bool) {
	f := c.newFramedReply(r, len(results))
	err := c.deliver(f, ops, results)
	if err == nil {
		err = f.send(false)
	}

	if err == nil {
		f.close()
		return true
	}

	c.end(f, err)
	f.close() // before ended frees the replier
	if c.cancellable != nil {
		c.cancellable.remove()
	}
	c.ended()
	return false
}

// deliver sends the items of a pop of several, but leaves the last ones in f while it has
// room. It returns why there are not more items. It stops at the first item that cannot be sent;
// the items after it go back, or their leases end.
func (c *replier) deliver(f *framedReply, ops []fdbpq.Op, results []fdbpq.Result) (failed error) {
	now := c.h.config.Now()
	for i := range results {
		op, result := &ops[i], &results[i]
		switch {
		case result.Err != nil:
			failed = cmp.Or(failed, result.Err)
		case leaseOver(op, result, now):
			failed = cmp.Or(failed, errLeaseOver)
			c.h.config.Outbox.Return(f.r.Queue, op.Kind, result, outbox.Late)
		case failed != nil:
			c.h.config.Outbox.Return(f.r.Queue, op.Kind, result, outbox.Unsendable)
		case f.add(op, result):
		default: // f is full, or takes none
			if failed = f.send(false); failed != nil {
				c.h.config.Outbox.Return(f.r.Queue, op.Kind, result, outbox.Unsendable)
			} else if !f.add(op, result) { // it needs a message of its own
				if failed = c.send(f.r, ops[i:i+1], results[i:i+1]); failed == nil {
					c.sent++
				}
			}
		}
	}

	return failed
}

// end sends the message that ends a pop of several items, which may be f. err says why
// there are not more items; it is nil if the pop has as many as it asked for.
func (c *replier) end(f *framedReply, err error) {
	c.h.config.Refused(err)

	// f itself can be the end, unless an error has to say why.
	if f.n > 0 {
		last := err == nil || isNotFound(err)
		if failed := f.send(last); failed != nil {
			err = failed
		} else if last {
			c.endpoint.Items(c.sent)
			c.endpoint.Done(f.r, nil)
			return
		}
	}

	c.endpoint.Items(c.sent)
	end := nats.Msg{Subject: c.reply, Header: nats.Header{}}
	var failure *subjects.Error
	if err != nil && (c.sent == 0 || !isNotFound(err)) {
		failure = Failure(err)
		end.Header = failureHeaders(failure, err)
	}

	setNotKept(end.Header, f.r)
	end.Header[subjects.HeaderBatchCount] = []string{strconv.Itoa(c.sent)}

	// A pop that got items has not failed.
	if c.sent > 0 {
		failure = nil
	}

	c.endpoint.Done(f.r, failure)
	c.h.config.Outbox.Send(&end)
}

// audited logs the request, once, if it is an action that has changed something or may have. items
// is how many items it has changed, -1 if it is not about items.
func (c *replier) audited(items int64, err error) {
	a := c.audit
	c.audit = nil
	unknown := err != nil && Failure(err).Unknown
	if a == nil || !unknown && (items == 0 || items < 0 && err != nil) {
		return
	}

	if unknown {
		a.outcome = subjects.OutcomeUnknown
	}
	c.h.Audit.note(*a, max(items, 0))
}

// changedItems returns how many items a request with these results has changed: 0 if it names a
// single item or has changed nothing, and -1 if it is not about items.
func changedItems(r *dispatch.Request, op *fdbpq.Op, results []fdbpq.Result) (n int64) {
	switch op.Kind {
	case fdbpq.OpPurge:
		return results[0].Len
	case fdbpq.OpConfigure, fdbpq.OpSetSchedule:
		if results[0].Unchanged {
			return 0
		}
		return -1
	}

	for i := range results {
		if r.Each && results[i].Err == nil {
			n++
		}
	}
	return n
}
