package bridge

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// parcel is items of a pop of several that go in one message, in frames. A pop that does not allow
// that has parcels that take none.
type parcel struct {
	c *clientReplier
	r *dispatch.Request
	e *encoder // nil until it has an item

	payload []byte // of e
	left    int    // items that are still to be delivered
	n       int    // items in it
	popped  []fdbpq.Item
	leased  []fdbpq.Lease
}

// newParcel returns an empty parcel for up to so many items. The caller closes it.
func (c *clientReplier) newParcel(r *dispatch.Request, items int) *parcel {
	return &parcel{c: c, r: r, left: items}
}

const (
	// maxParcel is the size of a message beyond which nothing is saved by more items in it.
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
		p.e = p.c.b.encoders.Get().(*encoder)
		p.payload = p.e.buf[:0]
	}

	item := &result.Item
	if op.Kind == fdbpq.OpLease {
		p.e.leased(p.r.Queue, item, &result.Lease)
		p.e.add(subjects.HeaderToken, result.Lease.Token.AppendTo(p.e.text))
	} else {
		p.e.item(p.r.Queue, item)
	}
	block, err := p.e.headerBlock()
	if err != nil {
		return false // as a message of its own, it fails with a reason
	}

	frame := subjects.Frame{Priority: item.ID.Priority, Headers: block, Value: item.Value}
	room := int(min(maxParcel, p.c.b.nc.MaxPayload())) - parcelHeaders
	if len(p.payload)+frame.Size() > room {
		return false
	}

	p.payload = subjects.AppendFrame(p.payload, frame)
	if p.n++; op.Kind == fdbpq.OpLease {
		p.leased = append(p.leased, result.Lease)
		return true
	}
	if p.popped == nil {
		p.popped = make([]fdbpq.Item, 0, min(p.left, room/frame.Size())) // the outbox keeps them
	}
	p.popped = append(p.popped, *item)
	return true
}

// send sends what is in the parcel, if anything; the last message ends the reply. If that fails,
// popped items go back, and leases end.
func (p *parcel) send(last bool) error {
	if p.n == 0 {
		return nil
	}

	header := nats.Header{subjects.HeaderFrames: {strconv.Itoa(p.n)}}
	if last {
		header[subjects.HeaderBatchCount] = []string{strconv.Itoa(p.c.sent + p.n)}
	}
	content := outbox.Content{Queue: p.r.Queue, Popped: p.popped, Leased: p.leased, Waits: p.r.WaitHandle()}

	p.left -= p.n
	err := p.c.b.outbox.SendItem(&nats.Msg{Subject: p.c.reply, Header: header, Data: p.payload}, content)
	if err == nil {
		p.c.sent += p.n
		for i := range p.leased {
			p.c.b.metrics.delivered(p.leased[i].Deliveries)
		}
	} else {
		p.c.b.replyFailed(err)
		content.Waits = dispatch.WaitHandle{} // whoever sends the parcel ends the request
		p.c.b.outbox.ReturnAll(&content, outbox.Unsendable)
	}

	p.payload, p.n, p.popped, p.leased = p.payload[:0], 0, nil, nil
	return err
}

// close ends the use of the parcel.
func (p *parcel) close() {
	if p.e != nil {
		p.e.buf = p.payload[:0]
		p.c.b.encoders.Put(p.e)
	}
}
