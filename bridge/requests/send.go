package requests

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

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
	send := func(h nats.Header) error {
		sent := m
		sent.Header = h
		if err := c.frame(&sent, item.ID.Priority); err != nil {
			return err
		}
		setNotKept(sent.Header, r)
		return c.h.config.Outbox.SendItem(&sent, content)
	}

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

	err := send(e.headers())
	if errors.Is(err, nats.ErrMaxPayload) && op.Kind == fdbpq.OpGet { // without the longest of ours
		delete(e.header, subjects.HeaderTrail)
		delete(e.header, subjects.HeaderNext)
		e.header[subjects.HeaderTrailCut] = []string{"true"}
		err = send(e.header)
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		err = send(e.itemAlone(item)) // without our headers it may fit
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

// frame puts a reply into a frame if the client asks for that and a value of its headers is beyond
// ASCII: some clients cannot read it otherwise. The frame of a lease has its token.
func (c *replier) frame(m *nats.Msg, priority int64) error {
	if !c.frames || wire.FrameRoom(m.Header) == 0 {
		return nil
	}

	if ack := m.Reply; ack != "" {
		m.Header[subjects.HeaderToken] = []string{ack[strings.LastIndexByte(ack, '.')+1:]}
		if !wire.Imported(c.reply) { // else the client may have no other way to acknowledge
			m.Reply = ""
		}
	}

	block, err := subjects.AppendHeaderLines([]byte(wire.BlockStart), m.Header)
	if err != nil {
		return fmt.Errorf("%w: %w", nats.ErrBadHeaderMsg, err)
	}
	frame := subjects.Frame{Priority: priority, Headers: append(block, wire.CRLF...), Value: m.Data}
	m.Data, m.Header = subjects.AppendFrame(nil, frame), nats.Header{subjects.HeaderFrames: {"1"}}
	return nil
}

// sendData answers with headers, nil for none, and a payload, which may be too large for a message.
func (c *replier) sendData(h nats.Header, payload []byte) (err error) {
	if h == nil {
		err = c.h.config.Outbox.SendData(c.reply, payload)
	} else {
		m := nats.Msg{Subject: c.reply, Header: h, Data: payload}
		priority, _ := strconv.ParseInt(h.Get(subjects.HeaderPriority), 10, 64) // 0 without one
		if err = c.frame(&m, priority); err == nil {
			err = c.h.config.Outbox.SendItem(&m, outbox.Content{})
		}
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: the reply has %d bytes: %w", errTooLarge, len(payload), err)
	}
	return err
}

// sendPayload sends any reply but items and those to acknowledgements. The operations share it.
func (c *replier) sendPayload(
	r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result,
) error {
	e := c.h.encoders.Get().(*encoder)
	defer c.h.encoders.Put(e)

	payload := c.verb.reply
	if r.Each {
		payload = (*encoder).each
	}

	// measure has refused requests whose replies do not fit, but the server may carry less by now.
	err := c.sendData(nil, payload(e, r.Queue, ops, results))
	if (ops[0].Kind == fdbpq.OpPush || r.Each) && errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: the request is done, but its results do not fit into a reply: %w",
			dispatch.ErrUnknownOutcome, err)
	}

	return err
}

// A pop of several items gets a message for each, or framed replies if it allows frames. The last
// message says how many items there were, and why there were not more.

// framedReply collects items for one message with frames. If a pop does not allow frames, it takes
// no items; nor leased ones of clients of other accounts, which may be able to acknowledge only
// through the reply subject of a message.
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
	if !f.c.frames || op.Kind == fdbpq.OpLease && wire.Imported(f.c.reply) {
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
