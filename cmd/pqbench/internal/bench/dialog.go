package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// step is what a client does before it counts: a request, and what follows from its reply.
type step struct {
	subject string
	payload []byte
	talk    talk
	items   int  // that a good reply completes, if talk does not say; 0 means 1
	once    bool // the request has a message id of its own
}

// talk says how a client goes on after the first reply of a step.
type talk uint8

const (
	// single: the reply completes the step.
	single talk = iota
	// acked: the reply is a leased item, which another request acknowledges.
	acked
	// chained: the reply is a leased item. The client's next step acknowledges it and leases
	// the next in one request.
	chained
	// batch: the reply is several items, each in a message or in frames, and an end.
	batch
	// batchAcked: the reply is a message for each of several leased items, each acknowledged by a published message.
	batchAcked
)

// several reports whether a request may have several replies.
func (t talk) several() bool { return t == batch || t == batchAcked }

const (
	payloadAck  = "+ACK"
	payloadNext = "+NXT"
)

// request is a message that wants a reply. Without a subject there is none.
type request struct {
	subject string
	payload []byte
	msgID   string // "" for none
}

// message returns the request as a message, with a reply subject or without.
func (r *request) message(reply string) *nats.Msg {
	m := &nats.Msg{Subject: r.subject, Reply: reply, Data: r.payload}
	if r.msgID != "" {
		m.Header = nats.Header{subjects.HeaderMsgID: {r.msgID}}
	}
	return m
}

// Message ids are numbers, after what sets this benchmark apart from others on the same queue.
var (
	msgIDPrefix = strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	lastMsgID   atomic.Int64
)

func newMsgID() string { return msgIDPrefix + strconv.FormatInt(lastMsgID.Add(1), 10) }

// dialog is one client's side of its steps. It sends nothing itself.
type dialog struct {
	step     step
	lease    string // of chained: subject of acknowledgements of the item that the client has
	received int    // items of the current batch
	asked    bool   // of acked: the acknowledgement was sent
}

// begin starts a step, the last one being done, and returns its request.
func (d *dialog) begin(s step) request {
	*d = dialog{step: s, lease: d.lease}
	if d.lease != "" {
		return request{subject: d.lease, payload: []byte(payloadNext)}
	}
	r := request{subject: s.subject, payload: s.payload}
	if s.once {
		r.msgID = newMsgID()
	}
	return r
}

// end returns the request that gives back what the client still has.
func (d *dialog) end() request {
	lease := d.lease
	*d = dialog{}
	if lease == "" {
		return request{}
	}
	return request{subject: lease, payload: []byte(payloadAck)}
}

// turn is what a reply calls for: a request, or to wait for more replies unless the step is
// done.
type turn struct {
	publish string // subject of an item to acknowledge by a published message
	request request
	done    bool
	items   int // that the step completed
	err     error
}

// reply takes a reply.
func (d *dialog) reply(m *nats.Msg) turn {
	if d.step.talk.several() {
		return d.replyOfSeveral(m)
	}
	t := turn{done: true, items: max(d.step.items, 1), err: replyError(m)}
	switch {
	case t.err != nil:
		t.items, d.lease = 0, ""
	case d.step.talk == single || d.asked:
	case m.Reply == "":
		return failed(fmt.Errorf("%s: a leased item has no reply subject", d.step.subject))
	case d.step.talk == acked:
		d.asked = true
		return turn{request: request{subject: m.Reply, payload: []byte(payloadAck)}}
	case d.step.talk == chained:
		d.lease = m.Reply
	}
	return t
}

func (d *dialog) replyOfSeveral(m *nats.Msg) turn {
	framed, err := subjects.FramesOf(m.Header)
	if err != nil {
		return failed(err)
	}
	d.received += framed
	sent, ends, err := subjects.ParseBatchEnd(m.Header)
	switch {
	case err != nil:
		return failed(err)
	case ends && sent != d.received:
		return failed(fmt.Errorf("%s: %d of %d items arrived", d.step.subject, d.received, sent))
	case ends && sent > 0: // why there are not more does not matter
		return turn{done: true, items: sent}
	case framed > 0:
		return turn{}
	}
	if err := replyError(m); err != nil {
		return failed(err)
	}
	d.received++
	if d.step.talk == batch {
		return turn{}
	}
	if m.Reply == "" {
		return failed(fmt.Errorf("%s: a leased item has no reply subject", d.step.subject))
	}
	return turn{publish: m.Reply}
}

func failed(err error) turn { return turn{done: true, err: err} }
