// Package requests handles the requests of NATS clients to one bridge: it decodes them, submits
// them to package dispatch, and answers them.
//
// Every request with a reply subject gets an answer: the result, or an error in headers, see
// subjects.ErrorFromHeaders. A pop of several items gets a message for each, or with frames for
// several, and one that ends them. Only pushes and acknowledgements may do without a reply subject.
// Requests that fail and have no usable reply subject are counted and logged.
//
// # Reading the code
//
// A request (request.go) goes through handler.go, decode.go, package dispatch, answer.go, send.go
// and package outbox. decode_push.go reads pushes; decode_manage.go and decode_browse.go read the
// requests that manage a queue. encode.go has the headers of replies, and replies.go the payloads.
//
// Two tables hold the differences: verbs.go between verbs, and errors.go between errors.
// inspect.go has requests answered beside the lanes: inspector.go and browse.go only read, and
// bulk.go changes many items. waits.go has the pops that can be cancelled. audit.go logs who made
// large changes.
package requests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Handler handles the requests to one bridge. Make it with New.
type Handler struct {
	config *Config
	// Inspector answers requests that only read, beside the lanes.
	Inspector *Inspector
	// Waits has the pops that can be cancelled.
	Waits *Waits
	// Audit logs who made large changes.
	Audit *AuditLog

	// endpoints is indexed by kind and verb. withPriority is that of a push whose subject has a
	// priority.
	endpoints    [2][]Endpoint
	withPriority Endpoint

	encoders sync.Pool // of *encoder
	requests sync.Pool // of *request
	repliers sync.Pool // of *replier

	lastPop atomic.Pointer[parsedPop] // nil before the first
}

// New returns a Handler. It calls only Endpoint of the Config, so the other functions may refer to
// the Handler.
func New(c Config) *Handler {
	h := &Handler{
		config:    &c,
		Inspector: newInspector(&c),
		Waits:     newWaits(c.Dispatcher),
		Audit:     newAuditLog(c.Logger),
		endpoints: [2][]Endpoint{make([]Endpoint, len(verbs)), make([]Endpoint, len(verbs))},
		encoders:  sync.Pool{New: func() any { return &encoder{now: c.Now} }},
		requests:  sync.Pool{New: func() any { return new(request) }},
		repliers:  sync.Pool{New: func() any { return new(replier) }},
	}
	for _, e := range c.Grammar.Endpoints() {
		if e.HasPriority {
			h.withPriority = c.Endpoint(e)
		} else {
			h.endpoints[e.Kind][e.Verb] = c.Endpoint(e)
		}
	}
	return h
}

// Receive handles a message that NATS delivered or, if o says so, that another bridge forwarded. It
// parses, checks and submits the request, and never waits for the store. NATS calls it from one
// goroutine for each subscription, in the order in which each publisher sent.
func (h *Handler) Receive(m *nats.Msg, o peers.Origin) {
	q := h.requests.Get().(*request)
	q.replier = h.newReplier(m.Reply, o)
	q.Replier, q.Silent = q.replier, m.Reply == ""
	if !q.Silent { // else nobody waits for an answer
		q.Waited = h.config.Peers.Waited()
	}

	q.Received = time.Now().Add(-q.Waited)
	if err := q.accept(m); err != nil {
		q.Answered = time.Now()
		q.Fail(&q.Request, nil, err)
	}

	// Its memory is for others.
	ops := q.ops
	if clear(ops); cap(ops) > maxSpareOps {
		ops = nil
	}
	*q = request{ops: ops[:0]}
	h.requests.Put(q)
}

// accept checks the message, decodes it and submits the request. If it returns an error, nothing
// was submitted and the client has no answer yet.
func (q *request) accept(m *nats.Msg) (err error) {
	h := q.h
	if err = q.checkReply(); err != nil {
		return err
	}

	if !q.from.Forwarded() { // otherwise the other bridge has checked it, and made a new block
		if err = checkBlock(m.Header, wire.BlockSize(m)); err != nil {
			return err
		}
	}

	if q.parsed, err = h.config.Grammar.Parse(m.Subject); err != nil {
		return err
	}

	q.verb = &verbs[q.parsed.Verb]
	if q.endpoint = h.endpoints[q.parsed.Kind][q.parsed.Verb]; q.parsed.HasPriority {
		q.endpoint = h.withPriority
	}

	if q.Waited >= dispatch.TurnTime(h.config.RequestTimeout) {
		return fmt.Errorf("%w: the request waited %v until this bridge saw it, and was not run: "+
			"try again", dispatch.ErrUnavailable, q.Waited.Round(time.Millisecond))
	}

	if q.Silent && !q.verb.value {
		return badRequest("%s without a reply subject: nobody would receive what it returns",
			q.parsed.Verb.Name(q.parsed.Kind))
	}

	headers := q.forwardable(m) // before decode takes them
	if err = q.decode(m); err != nil {
		return err
	}

	// Two kinds of requests do not go through a lane.
	if len(q.ops) == 0 {
		q.cancel()
		return nil
	}

	if q.inspection != nil {
		return q.inspect(q.Request)
	}

	q.Size = len(m.Data)
	if err = q.measure(); err != nil {
		return err
	}

	if q.Queue, err = h.config.Dispatcher.Queue(q.parsed.Kind, q.parsed.Queue); err != nil {
		return err
	}

	for i := range q.ops {
		q.ops[i].Queue = q.Queue.Target
	}

	return q.submit(m, headers)
}

// submit forwards the request if another bridge owns its queue, or else submits it here.
func (q *request) submit(m *nats.Msg, headers nats.Header) (err error) {
	// A push runs here if its headers were not saved, because this was the only bridge when it
	// arrived.
	h, last := q.h, q.ops[len(q.ops)-1].Kind
	saved := headers != nil || q.verb.op != fdbpq.OpPush || q.verb.several
	if saved && q.routed() {
		m.Header = headers
		forwarded, err := h.config.Peers.Router.Route(m, &q.Request, q.from, last == fdbpq.OpPop)
		if forwarded || err != nil {
			return err
		}
	}

	// Once the peer has answered, a pop gives its items back, but anything else must not run.
	if q.from.Forwarded() && !dispatch.TakesItem(q.ops) {
		q.OutOfTouch = h.config.Peers.Watch()
	}

	// From here on this bridge answers the request.
	if q.Wait != nil {
		var plain dispatch.WaitHandle
		if last == fdbpq.OpPop {
			plain = q.WaitHandle()
		}
		q.from.NoteWaiting(plain)
		if q.Wait.ID != "" {
			if q.cancellable, err = h.Waits.add(&q.Request, &q.parsed); err != nil {
				return err
			}
		}
	}

	// The dispatcher copies the operations.
	return h.config.Dispatcher.Submit(&q.Request, q.ops)
}

// maxSpareOps limits how many operations the memory of a request that is reused has room for.
const maxSpareOps = 1024

// routed reports whether a request runs on the bridge that owns its queue.
func (q *request) routed() bool {
	switch q.verb.op {
	case fdbpq.OpPush:
		// A push goes behind the items that pops take, and conflicts with nobody. But in a group
		// without items it goes among the first, which the next batch of pops reads.
		return slices.ContainsFunc(q.ops, func(op fdbpq.Op) bool {
			return op.Message.Headers[subjects.HeaderGroup] != nil
		})
	case fdbpq.OpPop:
		return true // pops at two bridges would conflict
	}

	// The owner draws from a source, so it must hear of new settings. An acknowledgement may end
	// with a lease.
	return q.ops[0].Kind == fdbpq.OpConfigure || q.ops[len(q.ops)-1].Kind == fdbpq.OpLease
}

// forwardable returns the headers to forward a request with. A push keeps its own, except headers
// that a NATS server has added, and a change of settings says who makes it. Of an acknowledgement
// see ackHeaders. Other requests lose their headers: NATS must not act on them twice.
func (q *request) forwardable(m *nats.Msg) nats.Header {
	switch q.parsed.Verb {
	case subjects.AckLease:
		return ackHeaders(m.Header)
	case subjects.Config:
		if client := m.Header[subjects.HeaderClient]; client != nil {
			return nats.Header{subjects.HeaderClient: client}
		}
	}

	grouped := q.parsed.Verb == subjects.Push && m.Header[subjects.HeaderGroup] != nil
	if !grouped || q.h.config.Peers.Router.Count() == 1 {
		return nil
	}

	headers := maps.Clone(m.Header)
	maps.DeleteFunc(headers, func(name string, values []string) bool {
		return subjects.HeaderFate(name, values) == subjects.Dropped
	})

	headers[subjects.HeaderTraceDest] = traceDisabled // a server has traced the request once
	return headers
}

// cancel ends the request that this one names, and answers. NATS delivers a cancel to any bridge,
// so it goes on to the others.
func (q *request) cancel() {
	key := waitKey(&q.parsed, q.Wait.ID)
	q.h.Waits.End(key)
	q.h.config.Peers.Router.Cancel(key)

	q.Wait, q.Answered = nil, time.Now()
	q.answerData(&q.Request, nil, nil, nil)
}

// A NATS server closes a connection that sends it a line of more than 4096 bytes. The line holds
// more than the reply subject: another bridge's subject, or the sizes of headers and payload.
const (
	// maxReply is the longest reply subject of a request that is run.
	maxReply = 2048
	// maxSendable is the longest reply subject that an error can be sent to.
	maxSendable = 4000
)

// checkReply refuses a request whose reply subject cannot be used.
func (c *replier) checkReply() error {
	reply := c.reply
	if why := c.h.Unanswerable(reply); why != "" && !c.from.Forwarded() {
		c.reply = ""
		return badRequest("reply subject %.64q %s: want an inbox",
			subjects.HideTokens(reply), why)
	}

	if len(reply) > maxReply {
		if len(reply) > maxSendable {
			c.reply = ""
		}
		return badRequest("the reply subject has %d bytes: want at most %d", len(reply), maxReply)
	}

	return nil
}

// Unanswerable returns why no reply may be sent to a subject, as the end of a sentence, or "" if
// one may. Clients choose the subject, and the bridge may publish where they may not.
func (h *Handler) Unanswerable(subject string) string {
	switch {
	case h.config.Grammar.Owns(subject), strings.HasPrefix(subject, peers.Root),
		strings.HasPrefix(subject, outbox.Root):
		// A bridge would take the reply for a request, or for a message from another bridge.
		return "is one of the service's own"
	case strings.HasPrefix(subject, "$"):
		return "belongs to NATS" // above all the JetStream API
	}

	return ""
}

// RefuseAck answers a client that acknowledges an item it popped, not leased. A client that does
// not ask for an answer gets none.
func (h *Handler) RefuseAck(m *nats.Msg) {
	if m.Reply == "" {
		return
	}

	c := h.newReplier(m.Reply, peers.Origin{})
	r := dispatch.Request{Received: time.Now()}

	err := c.checkReply()
	if err == nil {
		err = badRequest("this item was popped, not leased: do not acknowledge it")
	}

	r.Answered = time.Now()
	c.Fail(&r, nil, err)
}

// newReplier returns the replier of a request whose endpoint is not known yet.
func (h *Handler) newReplier(reply string, from peers.Origin) *replier {
	c := h.repliers.Get().(*replier)
	*c = replier{h: h, endpoint: h.config.Unknown, reply: reply, from: from}
	return c
}

// AppendHeader appends the headers of an item as they stand in a frame or message: without a lease
// only the pusher's. JetStream's programs get them.
func (h *Handler) AppendHeader(
	to []byte, q *dispatch.Queue, item *fdbpq.Item, lease *fdbpq.Lease,
) ([]byte, error) {
	e := h.encoders.Get().(*encoder)
	defer h.encoders.Put(e)
	if lease != nil {
		e.leased(q, item, lease)
	} else if len(e.itemAlone(item)) == 0 {
		return to, nil
	}

	block, err := e.headerBlock()
	if err != nil {
		return to, fmt.Errorf("%w: item %s of queue %s was not pushed over NATS and has headers "+
			"that it cannot carry; its lease ends: %w", errInternal, item.Job(), q.Name, err)
	}

	return append(to, block...), nil
}
