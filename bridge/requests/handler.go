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
// A request goes through handler.go, decode.go, package dispatch, replier.go, encode.go and package
// outbox. decode_push.go reads pushes; decode_manage.go and decode_browse.go read the requests that
// manage a queue. framed_reply.go answers pops of several items, and replies.go everything with a
// payload.
//
// Two tables hold the differences: verbs.go between verbs, and errors.go between errors.
// inspector.go and browse.go answer requests that only read, beside the lanes, and bulk.go changes
// many items. waits.go has the pops that can be cancelled. audit.go logs who made large changes.
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
	endpoints    [2][len(verbs)]Endpoint
	withPriority Endpoint

	encoders sync.Pool // of *encoder
	requests sync.Pool // of *request, until it is submitted
	repliers sync.Pool // of *replier

	lastPop atomic.Pointer[parsedPop] // nil before the first
}

// New returns a Handler. It calls only Endpoint of the Config, so the other functions may refer to
// the Handler.
func New(c Config) *Handler {
	h := &Handler{
		config: &c, Inspector: newInspector(&c), Waits: newWaits(c.Dispatcher),
		Audit: newAuditLog(c.Logger),
	}
	for _, e := range c.Grammar.Endpoints() {
		if e.HasPriority {
			h.withPriority = c.Endpoint(e)
		} else {
			h.endpoints[e.Kind][e.Verb] = c.Endpoint(e)
		}
	}

	h.encoders.New = func() any { return new(encoder) }
	h.requests.New = func() any { return new(request) }
	h.repliers.New = func() any { return new(replier) }
	return h
}

// Receive handles a message that NATS delivered or, if o says so, that another bridge forwarded. It
// parses, checks and submits the request, and never waits for the store. NATS calls it from one
// goroutine for each subscription, in the order in which each publisher sent.
func (h *Handler) Receive(m *nats.Msg, o peers.Origin) {
	c := h.newReplier(m.Reply, o)
	r := dispatch.Request{Replier: c, Waited: h.config.Peers.Waited()}
	if m.Reply == "" { // nobody waits for an answer
		r.Waited = 0
	}

	r.Received = time.Now().Add(-r.Waited)
	if err := h.accept(m, c, &r); err != nil {
		failed := r // so that r itself stays off the heap
		failed.Answered = time.Now()
		c.Fail(&failed, nil, err)
	}
}

// accept checks the message, decodes it and submits the request. If it returns an error, nothing
// was submitted and the client has no answer yet.
func (h *Handler) accept(m *nats.Msg, c *replier, r *dispatch.Request) (err error) {
	if err = h.checkReply(m, c); err != nil {
		return err
	}

	if !c.from.Forwarded() { // otherwise the other bridge has checked it, and made a new block
		if err = checkBlock(m.Header, wire.BlockSize(m)); err != nil {
			return err
		}
	}

	parsed, err := h.config.Grammar.Parse(m.Subject)
	if err != nil {
		return err
	}

	c.verb = &verbs[parsed.Verb]
	if c.endpoint = h.endpoints[parsed.Kind][parsed.Verb]; parsed.HasPriority {
		c.endpoint = h.withPriority
	}

	if r.Waited >= dispatch.TurnTime(h.config.RequestTimeout) {
		return fmt.Errorf("%w: the request waited %v until this bridge saw it, and was not run: "+
			"try again", dispatch.ErrUnavailable, r.Waited.Round(time.Millisecond))
	}

	needsReply := c.verb.op != fdbpq.OpPush && c.verb.op != fdbpq.OpAck
	if m.Reply == "" && needsReply {
		return badRequest("%s without a reply subject: nobody would receive what it returns",
			parsed.Verb.Name(parsed.Kind))
	}

	headers := h.forwardable(m, c.verb) // before decode takes them
	q := h.requests.Get().(*request)
	*q = request{
		h: h, parsed: parsed, verb: c.verb, reply: m.Reply, received: r.Received,
		ops: append(q.ops[:0], fdbpq.Op{Kind: c.verb.op, End: c.verb.end}),
	}

	if err = q.decode(m); err != nil {
		return err // the garbage collector gets its memory
	}

	defer h.reuse(q)
	c.batch, c.frames, c.inspection, c.audit = q.batch, q.frames, q.inspection, q.audit
	r.Wait, r.Pops, r.Each = q.wait, q.batch, q.each
	r.Size, r.Silent = len(m.Data), m.Reply == ""

	// Two kinds of requests do not go through a lane.
	if len(q.ops) == 0 {
		h.cancel(c, r, &q.parsed)
		return nil
	}

	if c.inspection != nil {
		return c.inspect(r)
	}

	if err = h.measure(c, r, q.ops); err != nil {
		return err
	}

	if r.Queue, err = h.config.Dispatcher.Queue(q.parsed.Kind, q.parsed.Queue); err != nil {
		return err
	}

	for i := range q.ops {
		q.ops[i].Queue = r.Queue.Target
	}

	return h.submit(m, c, r, q, headers)
}

// submit forwards the request if another bridge owns its queue, or else submits it here.
func (h *Handler) submit(
	m *nats.Msg, c *replier, r *dispatch.Request, q *request, headers nats.Header,
) (err error) {
	// A push runs here if its headers were not saved, because this was the only bridge when it
	// arrived.
	saved := headers != nil || q.verb.op != fdbpq.OpPush || q.verb.several
	if saved && routed(q) {
		m.Header = headers
		takes := q.ops[len(q.ops)-1].Kind == fdbpq.OpPop
		if forwarded, err := h.config.Peers.Router.Route(m, r, c.from, takes); forwarded ||
			err != nil {
			return err
		}
	}

	// Once the peer has answered, a pop gives its items back, but anything else must not run.
	if c.from.Forwarded() && !dispatch.TakesItem(q.ops) {
		r.OutOfTouch = h.config.Peers.Watch()
	}

	// From here on this bridge answers the request.
	if r.Wait != nil {
		var plain dispatch.WaitHandle
		if q.ops[len(q.ops)-1].Kind == fdbpq.OpPop {
			plain = r.WaitHandle()
		}
		c.from.NoteWaiting(plain)
		if r.Wait.ID != "" {
			if c.cancellable, err = h.Waits.add(r, &q.parsed); err != nil {
				return err
			}
		}
	}

	// The dispatcher copies the operations.
	return h.config.Dispatcher.Submit(r, q.ops)
}

// maxSpareOps limits how many operations the memory of a request that is reused has room for.
const maxSpareOps = 1024

// reuse frees the memory of a request for others.
func (h *Handler) reuse(q *request) {
	ops := q.ops
	if clear(ops); cap(ops) > maxSpareOps {
		ops = nil
	}
	*q = request{ops: ops}
	h.requests.Put(q)
}

// routed reports whether a request runs on the bridge that owns its queue.
func routed(q *request) bool {
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
func (h *Handler) forwardable(m *nats.Msg, v *verb) nats.Header {
	if v.op == fdbpq.OpAck {
		return ackHeaders(m.Header)
	}

	if client := m.Header[subjects.HeaderClient]; v.op == fdbpq.OpSettings && client != nil {
		return nats.Header{subjects.HeaderClient: client}
	}

	grouped := v.op == fdbpq.OpPush && !v.several && m.Header[subjects.HeaderGroup] != nil
	if !grouped || h.config.Peers.Router.Count() == 1 {
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
func (h *Handler) cancel(c *replier, r *dispatch.Request, parsed *subjects.Request) {
	key := waitKey(parsed, r.Wait.ID)
	h.Waits.End(key)
	h.config.Peers.Router.Cancel(key)

	answered := *r // so that r itself stays off the heap
	answered.Wait, answered.Answered = nil, time.Now()
	c.answerData(&answered, nil, nil, nil)
}

// checkBlock refuses too many headers, and blocks that wire.CheckBlock refuses.
func checkBlock(h nats.Header, size int) error {
	lines := 0
	for _, values := range h {
		lines += len(values)
	}

	if lines > subjects.MaxHeaders {
		return errTooManyHeaders(lines)
	}

	if err := wire.CheckBlock(h, size, subjects.AddedByServer); err != nil {
		return badRequest("%w", err)
	}

	return nil
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
func (h *Handler) checkReply(m *nats.Msg, c *replier) error {
	if why := h.Unanswerable(m.Reply); why != "" && !c.from.Forwarded() {
		c.reply = ""
		return badRequest("reply subject %.64q %s: want an inbox",
			subjects.HideTokens(m.Reply), why)
	}

	if len(m.Reply) > maxReply {
		if len(m.Reply) > maxSendable {
			c.reply = ""
		}
		return badRequest("the reply subject has %d bytes: want at most %d", len(m.Reply), maxReply)
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

// opMemory estimates the memory that an operation takes, with its result, beyond its message.
const opMemory = 512

// measure sets the size of a request. It refuses one whose reply or whose items the server could
// not carry.
func (h *Handler) measure(c *replier, r *dispatch.Request, ops []fdbpq.Op) error {
	if !c.verb.several {
		successors := ops[0].Successors()
		for i := range successors {
			if err := h.measurePushed(r, &successors[i].Message); err != nil {
				return badRequest("successor %d: %w", i, err)
			}
		}

		r.Size += opMemory * (len(ops) - 1 + len(successors))
		return h.measurePushed(r, &ops[0].Message) // nothing else has headers
	}

	// All of them may be duplicates.
	size := subjects.MaxPushedBatch(len(ops)) + subjects.MaxDuplicates(len(ops))
	most := h.config.MaxPayload()
	if c.reply != "" && int64(size) > most {
		return fmt.Errorf("%w: a reply with %d ids can have %d bytes, and the server carries at "+
			"most %d: send fewer items at once", errTooLarge, len(ops), size, most)
	}

	for i := range ops {
		if err := h.measurePushed(r, &ops[i].Message); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}

	r.Size += opMemory * len(ops)
	return nil
}

// RefuseAck answers a client that acknowledges an item it popped, not leased. A client that does
// not ask for an answer gets none.
func (h *Handler) RefuseAck(m *nats.Msg) {
	if m.Reply == "" {
		return
	}

	c := h.newReplier(m.Reply, peers.Origin{})
	r := dispatch.Request{Received: time.Now()}

	err := h.checkReply(m, c)
	if err == nil {
		err = badRequest("this item was popped, not leased: do not acknowledge it")
	}

	r.Answered = time.Now()
	c.Fail(&r, nil, err)
}
