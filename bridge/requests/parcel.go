package requests

import (
	"cmp"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// A pop of several items gets a message for each, or parcels if it allows frames. The last message
// says how many items there were, and why there were not more.

// answerSeveral answers a pop of several items.
func (c *replier) answerSeveral(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	p := c.newParcel(r, len(results))
	defer p.close()
	c.end(p, c.deliver(p, ops, results))
}

// Deliver sends items of a pop that goes on waiting for more. An item that cannot be sent ends the
// pop.
func (c *replier) Deliver(
	r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result,
) (more bool) {
	p := c.newParcel(r, len(results))
	err := c.deliver(p, ops, results)
	if err == nil {
		err = p.send(false)
	}

	if err == nil {
		p.close()
		return true
	}

	c.end(p, err)
	p.close()
	c.cancellable.remove()
	c.ended()
	return false
}

// deliver sends the items of a pop of several, but leaves the last ones in the parcel while it has
// room. It returns why there are not more items. It stops at the first item that cannot be sent;
// the items after it go back, or their leases end.
func (c *replier) deliver(p *parcel, ops []fdbpq.Op, results []fdbpq.Result) (failed error) {
	now := c.h.config.Now()
	for i := range results {
		op, result := &ops[i], &results[i]
		switch {
		case result.Err != nil:
			failed = cmp.Or(failed, result.Err)
		case leaseOver(op, result, now):
			failed = cmp.Or(failed, errLeaseOver)
			c.h.config.Outbox.Return(p.r.Queue, op.Kind, result, outbox.Late)
		case failed != nil:
			c.h.config.Outbox.Return(p.r.Queue, op.Kind, result, outbox.Unsendable)
		case p.add(op, result):
		default: // the parcel is full, or takes none
			if failed = p.send(false); failed != nil {
				c.h.config.Outbox.Return(p.r.Queue, op.Kind, result, outbox.Unsendable)
			} else if !p.add(op, result) { // it needs a message of its own
				if failed = c.send(p.r, ops[i:i+1], results[i:i+1]); failed == nil {
					c.sent++
				}
			}
		}
	}

	return failed
}

// end sends the message that ends a pop of several items, which may be the parcel. err says why
// there are not more items; it is nil if the pop has as many as it asked for.
func (c *replier) end(p *parcel, err error) {
	c.h.config.Refused(err)

	// The parcel itself can be the end, unless an error has to say why.
	if p.n > 0 {
		last := err == nil || isNotFound(err)
		if failed := p.send(last); failed != nil {
			err = failed
		} else if last {
			c.endpoint.Items(c.sent)
			c.endpoint.Done(p.r, nil)
			return
		}
	}

	c.endpoint.Items(c.sent)
	end := nats.Msg{Subject: c.reply, Header: nats.Header{}}
	var f *subjects.Error
	if err != nil && (c.sent == 0 || !isNotFound(err)) {
		f = Failure(err)
		end.Header = failureHeaders(f, err)
	}

	setNotKept(end.Header, p.r)
	end.Header[subjects.HeaderBatchCount] = []string{strconv.Itoa(c.sent)}

	// A pop that got items has not failed.
	if c.sent > 0 {
		f = nil
	}

	c.endpoint.Done(p.r, f)
	c.h.config.Outbox.Send(&end)
}

// isNotFound reports whether a pop ended with code 404: because there was nothing, not because of a
// limit.
func isNotFound(err error) bool {
	return classify(err).code == subjects.CodeNotFound
}

// parcel collects items for one message with frames. If a pop does not allow frames, its parcels
// take no items.
type parcel struct {
	c *replier
	r *dispatch.Request
	e *encoder // nil until it has an item

	payload []byte // of e
	left    int    // items that are still to be delivered
	n       int    // items in it
	popped  []fdbpq.Item
	leased  []fdbpq.Lease
}

// newParcel returns an empty parcel for up to that many items. The caller closes it.
func (c *replier) newParcel(r *dispatch.Request, items int) *parcel {
	return &parcel{c: c, r: r, left: items}
}

const (
	// maxParcel is the size beyond which more items in a message save nothing.
	maxParcel = 128 << 10
	// parcelHeaders is more than the headers of the message take.
	parcelHeaders = 128
)

// add puts an item into the parcel. It returns false if there is no room, or if the item needs a
// message of its own.
func (p *parcel) add(op *fdbpq.Op, result *fdbpq.Result) bool {
	if !p.c.frames {
		return false
	}

	if p.e == nil {
		p.e = p.c.h.encoders.Get().(*encoder)
		p.payload = p.e.buf[:0]
	}

	item := &result.Item
	if op.Kind == fdbpq.OpLease {
		p.e.leasedBy(p.r.Queue, op, result)
		p.e.add(subjects.HeaderToken, result.Lease.Token.AppendTo(p.e.text))
	} else {
		p.e.item(p.r.Queue, item)
	}

	block, err := p.e.headerBlock()
	if err != nil {
		return false // as a message of its own, it fails with a reason
	}

	frame := subjects.Frame{Priority: item.ID.Priority, Headers: block, Value: item.Value}
	const number = len("999,")
	room := int(min(maxParcel, p.c.h.config.MaxPayload())) - parcelHeaders
	if u := p.r.Unkept; u != nil {
		room -= number * (len(u.Results) + len(u.Values))
	}
	if len(p.payload)+frame.Size() > room {
		return false
	}

	// The outbox keeps the items until NATS has confirmed the message.
	p.payload = subjects.AppendFrame(p.payload, frame)
	if p.n++; op.Kind == fdbpq.OpLease {
		p.leased = append(p.leased, result.Lease)
		return true
	}

	if p.popped == nil {
		p.popped = make([]fdbpq.Item, 0, min(p.left, room/frame.Size()))
	}

	p.popped = append(p.popped, *item)
	return true
}

// send sends the parcel unless it is empty; the last message ends the reply. If that fails, popped
// items go back, and leases end.
func (p *parcel) send(last bool) error {
	if p.n == 0 {
		return nil
	}

	header := nats.Header{subjects.HeaderFrames: {strconv.Itoa(p.n)}}
	setNotKept(header, p.r)
	if last {
		header[subjects.HeaderBatchCount] = []string{strconv.Itoa(p.c.sent + p.n)}
	}

	m := nats.Msg{Subject: p.c.reply, Header: header, Data: p.payload}
	content := outbox.Content{
		Queue: p.r.Queue, Popped: p.popped, Leased: p.leased, Waits: p.r.WaitHandle(),
	}

	p.left -= p.n
	err := p.c.h.config.Outbox.SendItem(&m, content)
	if err == nil {
		p.c.sent += p.n
		for i := range p.leased {
			p.c.h.config.Delivered(p.leased[i].Deliveries)
		}
	} else {
		p.c.h.config.ReplyFailed(err)
		content.Waits = dispatch.WaitHandle{} // the caller ends the request
		p.c.h.config.Outbox.ReturnAll(&content, outbox.Unsendable)
	}

	p.payload, p.n, p.popped, p.leased = p.payload[:0], 0, nil, nil
	return err
}

// close ends the use of the parcel.
func (p *parcel) close() {
	if p.e != nil {
		p.e.buf = p.payload[:0]
		p.c.h.encoders.Put(p.e)
	}
}
