package requests

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// A pop of several items gets a message for each, or framed replies if it allows frames. The last
// message says how many items there were, and why there were not more.

// framedReply collects items for one message with frames. If a pop does not allow frames, it takes
// no items.
type framedReply struct {
	c *replier
	r *dispatch.Request
	e *encoder // nil until it has an item

	payload []byte // of e
	left    int    // items that are still to be delivered
	n       int    // items in it
	popped  []fdbpq.Item
	leased  []fdbpq.Lease
}

// newFramedReply returns an empty one for up to that many items. The caller closes it.
func (c *replier) newFramedReply(r *dispatch.Request, items int) *framedReply {
	return &framedReply{c: c, r: r, left: items}
}

const (
	// maxFramedReply is the size beyond which more items in a message save nothing.
	maxFramedReply = 128 << 10
	// framedReplyHeaders is more than the headers of the message take.
	framedReplyHeaders = 128
)

// add puts an item into the message. It returns false if there is no room, or if the item needs a
// message of its own.
func (f *framedReply) add(op *fdbpq.Op, result *fdbpq.Result) bool {
	if !f.c.frames {
		return false
	}

	if f.e == nil {
		f.e = f.c.h.encoders.Get().(*encoder)
		f.payload = f.e.buf[:0]
	}

	item := &result.Item
	if op.Kind == fdbpq.OpLease {
		f.e.leasedBy(f.r.Queue, op, result)
		f.e.add(subjects.HeaderToken, result.Lease.Token.AppendTo(f.e.text))
	} else {
		f.e.item(f.r.Queue, item)
	}

	block, err := f.e.headerBlock()
	if err != nil {
		return false // as a message of its own, it fails with a reason
	}

	frame := subjects.Frame{Priority: item.ID.Priority, Headers: block, Value: item.Value}
	const number = len("999,")
	room := int(min(maxFramedReply, f.c.h.config.MaxPayload())) - framedReplyHeaders
	if u := f.r.Unkept; u != nil {
		room -= number * (len(u.Results) + len(u.Values))
	}
	if len(f.payload)+frame.Size() > room {
		return false
	}

	// The outbox keeps the items until NATS has confirmed the message.
	f.payload = subjects.AppendFrame(f.payload, frame)
	if f.n++; op.Kind == fdbpq.OpLease {
		f.leased = append(f.leased, result.Lease)
		return true
	}

	if f.popped == nil {
		f.popped = make([]fdbpq.Item, 0, min(f.left, room/frame.Size()))
	}

	f.popped = append(f.popped, *item)
	return true
}

// send sends the message unless it is empty; the last message ends the reply. If that fails, popped
// items go back, and leases end.
func (f *framedReply) send(last bool) error {
	if f.n == 0 {
		return nil
	}

	header := nats.Header{subjects.HeaderFrames: {strconv.Itoa(f.n)}}
	setNotKept(header, f.r)
	if last {
		header[subjects.HeaderBatchCount] = []string{strconv.Itoa(f.c.sent + f.n)}
	}

	m := nats.Msg{Subject: f.c.reply, Header: header, Data: f.payload}
	content := outbox.Content{
		Queue: f.r.Queue, Popped: f.popped, Leased: f.leased, Waits: f.r.WaitHandle(),
	}

	f.left -= f.n
	err := f.c.h.config.Outbox.SendItem(&m, content)
	if err == nil {
		f.c.sent += f.n
		for i := range f.leased {
			f.c.h.config.Delivered(f.leased[i].Deliveries)
		}
	} else {
		f.c.h.config.ReplyFailed(err)
		content.Waits = dispatch.WaitHandle{} // the caller ends the request
		f.c.h.config.Outbox.ReturnAll(&content, outbox.Unsendable)
	}

	f.payload, f.n, f.popped, f.leased = f.payload[:0], 0, nil, nil
	return err
}

// close ends the use of the encoder.
func (f *framedReply) close() {
	if f.e != nil {
		f.e.buf = f.payload[:0]
		f.c.h.encoders.Put(f.e)
	}
}

// leaseOver reports whether an item was leased and its lease is over, so that somebody else may
// have the item by now. The store may have taken too long, or the process may have stood still.
func leaseOver(op *fdbpq.Op, result *fdbpq.Result, now time.Time) bool {
	return op.Kind == fdbpq.OpLease && !result.Lease.Until.After(now)
}
