package bridge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// handler takes the messages of one subscription. NATS calls it from one goroutine, in the order in
// which each publisher sent. It parses, checks and submits them, and never waits for the store.
type handler struct{ b *Bridge }

func newHandler(b *Bridge) *handler { return &handler{b: b} }

// handle is the nats.MsgHandler.
func (h *handler) handle(m *nats.Msg) { h.receive(m, peers.Origin{}) }

// receive handles a message that NATS delivered or that another bridge forwarded.
func (h *handler) receive(m *nats.Msg, o peers.Origin) {
	c := h.b.newReplier(m.Reply, o)
	r := dispatch.Request{Replier: c, Received: time.Now()}
	if err := h.accept(m, c, &r); err != nil {
		failed := r // so that r itself stays off the heap
		failed.Answered = time.Now()
		c.Fail(&failed, nil, err)
	}
}

// accept checks the message, decodes it and submits the request. If it returns an error, nothing
// was submitted and the client has no answer yet.
func (h *handler) accept(m *nats.Msg, c *clientReplier, r *dispatch.Request) error {
	parsed, err := h.check(m, c)
	if err != nil {
		return err
	}

	c.endpoint = h.b.endpoints.of(&parsed)
	verb := c.endpoint.verb
	if m.Reply == "" && verb.needsReply() {
		return badRequest("%s without a reply subject: nobody would receive what it returns",
			parsed.Verb)
	}

	// The dispatcher copies the operations, so their memory serves later requests.
	headers := h.forwardable(m, verb) // before decode takes them
	room := h.b.spans.Get().(*[]fdbpq.Op)
	first := fdbpq.Op{Kind: verb.op, End: verb.end}
	span, err := decode(verb, m, &parsed, c, r, append((*room)[:0], first))
	if err != nil {
		return err // the garbage collector gets the room
	}

	defer h.b.keepSpan(room, span)
	r.Size, r.Silent = len(m.Data), m.Reply == ""

	// Two kinds of requests do not go through a lane.
	if len(span) == 0 { // it cancels another one: see decodePop
		h.cancel(c, r, &parsed)
		return nil
	}

	if c.inspection != nil {
		return c.inspect(r)
	}

	if err := h.measure(c, r, span); err != nil {
		return err
	}

	if r.Queue, err = h.b.dispatcher.Queue(parsed.Kind, parsed.Queue); err != nil {
		return err
	}

	for i := range span {
		span[i].Queue = r.Queue.Target
	}

	return h.submit(m, c, r, &parsed, span, headers)
}

// submit forwards the request if another bridge owns its queue, or else submits it here.
func (h *handler) submit(
	m *nats.Msg, c *clientReplier, r *dispatch.Request, parsed *subjects.Request,
	span []fdbpq.Op, headers nats.Header,
) (err error) {
	// If this was the only bridge when the push arrived, its headers were not saved, so it runs
	// here.
	verb := c.endpoint.verb
	kept := headers != nil || verb.op != fdbpq.OpPush || verb.several
	if kept && routed(verb, span) {
		m.Header = headers
		if forwarded, err := h.b.peers.Router.Route(m, r, c.from); forwarded || err != nil {
			return err
		}
	}

	// From here on the request is this bridge's.
	if r.Wait != nil {
		c.from.NoteWaiting()
		if r.Wait.ID != "" {
			if c.cancellable, err = h.b.waits.add(r, parsed); err != nil {
				return err
			}
		}
	}

	return h.b.dispatcher.Submit(r, span)
}

// maxSpareSpan is the most operations for which the memory is kept.
const maxSpareSpan = 1024

// keepSpan keeps the memory of a span for later requests. The span was in the room or has outgrown
// it.
func (b *Bridge) keepSpan(room *[]fdbpq.Op, span []fdbpq.Op) {
	clear(span)
	if cap(span) > cap(*room) && cap(span) <= maxSpareSpan {
		*room = span
	}
	b.spans.Put(room)
}

// routed reports whether a request runs on the bridge that owns its queue.
func routed(v *verb, span []fdbpq.Op) bool {
	switch v.op {
	case fdbpq.OpPush:
		// A push goes behind what pops take, and conflicts with nobody. But if its group has no
		// items, it goes among the first ones, which the next batch of pops reads.
		return slices.ContainsFunc(span, func(op fdbpq.Op) bool {
			return op.Message.Headers[subjects.HeaderGroup] != nil
		})
	case fdbpq.OpPop:
		return true // pops at two bridges would conflict
	}

	// The owner draws from a source, so it must hear of new settings. An acknowledgement may end
	// with a lease.
	return span[0].Kind == fdbpq.OpConfigure || span[len(span)-1].Kind == fdbpq.OpLease
}

// forwardable returns the headers with which a push is forwarded: its own, except what a NATS
// server has added. Other requests are forwarded without headers: theirs were for NATS, which must
// not act on them twice.
func (h *handler) forwardable(m *nats.Msg, v *verb) nats.Header {
	grouped := v.op == fdbpq.OpPush && !v.several && m.Header[subjects.HeaderGroup] != nil
	if !grouped || h.b.peers.Router.Count() == 1 {
		return nil
	}

	headers := maps.Clone(m.Header)
	maps.DeleteFunc(headers, func(name string, values []string) bool {
		return subjects.HeaderFate(name, values) == subjects.Dropped
	})

	headers[subjects.HeaderTraceDest] = traceDisabled // a server has traced the request once
	return headers
}

// cancel ends the request that this one cancels, and answers. NATS gives a cancel to any bridge, so
// the others are told.
func (h *handler) cancel(c *clientReplier, r *dispatch.Request, parsed *subjects.Request) {
	key := waitKey(parsed, r.Wait.ID)
	h.b.waits.end(key)
	h.b.peers.Router.Cancel(key)

	answered := *r // so that r itself stays off the heap
	answered.Wait, answered.Answered = nil, time.Now()
	c.answerData(&answered, nil, nil)
}

// check checks what does not depend on the verb, and parses the subject.
func (h *handler) check(m *nats.Msg, c *clientReplier) (parsed subjects.Request, err error) {
	if err := h.checkReply(m, c); err != nil {
		return parsed, err
	}

	if !c.from.Forwarded() { // otherwise the other bridge has checked it, and made a new block
		if err := checkBlock(m.Header, wire.BlockSize(m)); err != nil {
			return parsed, err
		}
	}

	return h.b.grammar.Parse(m.Subject)
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
func (h *handler) checkReply(m *nats.Msg, c *clientReplier) error {
	if why := h.b.unanswerable(m.Reply); why != "" {
		c.reply = ""
		return badRequest("reply subject %.64q %s: want an inbox", wire.WithoutToken(m.Reply), why)
	}

	if len(m.Reply) > maxReply {
		if len(m.Reply) > maxSendable {
			c.reply = ""
		}
		return badRequest("the reply subject has %d bytes: want at most %d", len(m.Reply), maxReply)
	}

	return nil
}

// unanswerable returns why no reply may be sent to a subject, as the end of a sentence, or "" if
// one may. Clients choose the subject, and the bridge may publish where they may not.
func (b *Bridge) unanswerable(subject string) string {
	switch {
	case b.grammar.Owns(subject), strings.HasPrefix(subject, peers.Root),
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
func (h *handler) measure(c *clientReplier, r *dispatch.Request, ops []fdbpq.Op) error {
	if !c.endpoint.verb.several {
		r.Size += opMemory * (len(ops) - 1)
		return h.measurePushed(r, &ops[0].Message) // nothing else has headers
	}

	// All of them may be duplicates.
	size := subjects.MaxPushedBatch(len(ops)) + subjects.MaxDuplicates(len(ops))
	most := h.b.nc.MaxPayload()
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

// measurePushed adds the headers of a pushed message to the size of its request. It refuses a
// message that the server could not carry back.
func (h *handler) measurePushed(r *dispatch.Request, pushed *fdbpq.Message) error {
	if len(pushed.Headers) == 0 && pushed.MsgID == "" && pushed.Unique == "" {
		return nil
	}

	headers := wire.HeaderSize(pushed.Headers) + keysSize(pushed)
	if size, most := len(pushed.Value)+headers, h.b.nc.MaxPayload(); int64(size) > most {
		return fmt.Errorf("%w: %d bytes with headers: the server carries at most %d",
			errTooLarge, size, most)
	}

	r.Size += headers + wire.HeaderMemory(pushed.Headers) + keysMemory(pushed)
	return nil
}

// refuseAck answers a client that acknowledges an item it popped, not leased. A client that does
// not ask for an answer gets none.
func (h *handler) refuseAck(m *nats.Msg) {
	if m.Reply == "" {
		return
	}

	c := h.b.newReplier(m.Reply, peers.Origin{})
	r := dispatch.Request{Received: time.Now()}

	err := h.checkReply(m, c)
	if err == nil {
		err = badRequest("this item was popped, not leased: do not acknowledge it")
	}

	r.Answered = time.Now()
	c.Fail(&r, nil, err)
}
