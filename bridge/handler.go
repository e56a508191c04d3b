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

// A NATS server closes a connection that sends it a line of more than 4096 bytes. The line holds
// more than the reply subject: another bridge's subject, or the sizes of headers and payload.
const (
	// maxReply is the longest reply subject of a request that is run.
	maxReply = 2048
	// maxSendable is the longest reply subject that an error can be sent to.
	maxSendable = 4000
)

// accept checks the message and submits it. If it returns an error, the request was not accepted.
func (h *handler) accept(m *nats.Msg, c *clientReplier, r *dispatch.Request) error {
	parsed, err := h.check(m, c)
	if err != nil {
		return err
	}

	c.endpoint = h.b.endpoints.of(&parsed)
	verb := c.endpoint.verb
	if m.Reply == "" && verb.needsReply() {
		return fmt.Errorf("%w: %s without a reply subject: nobody would receive what it returns", errBadRequest, parsed.Verb)
	}

	headers := h.forwardable(m, verb) // before decode takes them
	room := h.b.spans.Get().(*[]fdbpq.Op)
	span, err := decode(verb, m, &parsed, c, r, append((*room)[:0], fdbpq.Op{Kind: verb.op, End: verb.end}))
	if err != nil {
		return err // what is in the room is left to the garbage collector
	}
	defer h.b.keepSpan(room, span) // the dispatcher copies it
	r.Size, r.Silent = len(m.Data), m.Reply == ""

	// These are for no lane. A pop without operations cancels another: see decodePop.
	if len(span) == 0 {
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

	// A push whose headers were not kept, because there was no other bridge a moment ago, runs here.
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
			if c.cancellable, err = h.b.waits.add(r, &parsed); err != nil {
				return err
			}
		}
	}
	return h.b.dispatcher.Submit(r, span)
}

// maxSpareSpan is the most operations for which the memory is kept.
const maxSpareSpan = 1024

// keepSpan keeps the memory of a span, which was in the room or has outgrown it, for later requests.
func (b *Bridge) keepSpan(room *[]fdbpq.Op, span []fdbpq.Op) {
	clear(span)
	if cap(span) > cap(*room) && cap(span) <= maxSpareSpan {
		*room = span
	}
	b.spans.Put(room)
}

// routed reports whether a request runs on the bridge that owns its queue: a pop, anything that ends
// with a lease, a change of settings, because the owner draws from a source, and pushes with groups. Other pushes go behind what pops take, and conflict with
// nobody. An item whose group has none goes among the first ones, which the next batch of pops reads.
func routed(v *verb, span []fdbpq.Op) bool {
	if v.op == fdbpq.OpPush {
		return slices.ContainsFunc(span, func(op fdbpq.Op) bool { return op.Message.Headers[subjects.HeaderGroup] != nil })
	}
	return v.op == fdbpq.OpPop || span[0].Kind == fdbpq.OpConfigure || span[len(span)-1].Kind == fdbpq.OpLease
}

// forwardable returns the headers with which a request could be forwarded: those of a push, but for
// a NATS server's own notes. All others have theirs for NATS, which must not act on them once more.
func (h *handler) forwardable(m *nats.Msg, v *verb) nats.Header {
	if v.op != fdbpq.OpPush || v.several || m.Header[subjects.HeaderGroup] == nil || h.b.peers.Router.Count() == 1 {
		return nil
	}
	headers := maps.Clone(m.Header)
	maps.DeleteFunc(headers, func(name string, values []string) bool {
		return subjects.HeaderFate(name, values) == subjects.Dropped
	})
	headers[subjects.HeaderTraceDest] = traceDisabled // a server has traced the request once
	return headers
}

// check checks what does not depend on the verb, and parses the subject.
func (h *handler) check(m *nats.Msg, c *clientReplier) (parsed subjects.Request, err error) {
	if err := h.checkReply(m, c); err != nil {
		return parsed, err
	}
	if !c.from.Forwarded() { // else the other bridge has done it, and made a new block
		if err := checkBlock(m.Header, wire.BlockSize(m)); err != nil {
			return parsed, err
		}
	}

	return h.b.grammar.Parse(m.Subject)
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

// measure sets the size of a request, and refuses one whose reply, or whose items, the server could
// not carry.
func (h *handler) measure(c *clientReplier, r *dispatch.Request, ops []fdbpq.Op) error {
	if !c.endpoint.verb.several {
		r.Size += opMemory * (len(ops) - 1)
		return h.measurePushed(r, &ops[0].Message) // nothing else has headers
	}

	if size, most := maxPushedReply(ops), h.b.nc.MaxPayload(); c.reply != "" && int64(size) > most {
		return fmt.Errorf("%w: a reply with %d ids can have %d bytes, and the server carries at most %d: send fewer items at once",
			errTooLarge, len(ops), size, most)
	}
	for i := range ops {
		if err := h.measurePushed(r, &ops[i].Message); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	r.Size += opMemory * len(ops)
	return nil
}

// opMemory estimates the memory that an operation takes, with its result, beyond its message.
const opMemory = 512

// measurePushed adds the headers of a pushed message to the size of its request, and refuses a
// message that the server could not carry back.
func (h *handler) measurePushed(r *dispatch.Request, pushed *fdbpq.Message) error {
	if len(pushed.Headers) == 0 && pushed.MsgID == "" && pushed.Unique == "" {
		return nil
	}

	headers := wire.HeaderSize(pushed.Headers) + keysSize(pushed)
	if size, most := len(pushed.Value)+headers, h.b.nc.MaxPayload(); int64(size) > most {
		return fmt.Errorf("%w: %d bytes with headers: the server carries at most %d", errTooLarge, size, most)
	}
	r.Size += headers + wire.HeaderMemory(pushed.Headers) + keysMemory(pushed)
	return nil
}

// keysSize is how many bytes setKeys adds to the message of an item.
func keysSize(m *fdbpq.Message) int {
	keys := nats.Header{}
	if setKeys(keys, m); len(keys) == 0 {
		return 0
	}
	if len(m.Headers) > 0 {
		return wire.LinesSize(keys)
	}
	return wire.HeaderSize(keys)
}

// keysMemory is about how many bytes more than their own keys take in a transaction, which writes
// the keys of the store several times: with conflict ranges, and to remove what is over.
func keysMemory(m *fdbpq.Message) (n int) {
	const writes, rest = 20, 64
	for _, key := range []string{m.MsgID, m.Unique} {
		if key != "" {
			n += writes * (len(key) + rest)
		}
	}
	return n
}

// maxPushedReply is the largest size of the reply to a batch of pushes.
func maxPushedReply(ops []fdbpq.Op) int {
	size := subjects.MaxPushedBatch(len(ops))
	for i := range ops {
		if m := &ops[i].Message; m.MsgID != "" || m.Unique != "" {
			return size + subjects.MaxDuplicates(len(ops))
		}
	}
	return size
}

// checkReply refuses a request whose reply subject cannot be used.
func (h *handler) checkReply(m *nats.Msg, c *clientReplier) error {
	if why := h.b.unanswerable(m.Reply); why != "" {
		c.reply = ""
		return fmt.Errorf("%w: reply subject %.64q %s: want an inbox", errBadRequest, wire.WithoutToken(m.Reply), why)
	}
	if len(m.Reply) > maxReply {
		if len(m.Reply) > maxSendable {
			c.reply = ""
		}
		return fmt.Errorf("%w: the reply subject has %d bytes: want at most %d", errBadRequest, len(m.Reply), maxReply)
	}
	return nil
}

// refuseAck answers a client that acknowledges an item which it has popped, not leased. A client
// that does not ask for an answer gets none.
func (h *handler) refuseAck(m *nats.Msg) {
	if m.Reply == "" {
		return
	}

	c := h.b.newReplier(m.Reply, peers.Origin{})
	r := dispatch.Request{Received: time.Now()}

	err := h.checkReply(m, c)
	if err == nil {
		err = fmt.Errorf("%w: the item was popped, not leased, so it is not acknowledged: want nothing here", errBadRequest)
	}
	r.Answered = time.Now()
	c.Fail(&r, nil, err)
}

// unanswerable returns why no reply may be sent to a subject, as the end of a sentence, or "" if
// one may. Clients choose the subject, and the bridge may publish where they may not. A reply could
// reach a bridge as a request, or as a message from another bridge. And subjects that begin with
// "$" belong to NATS, above all the JetStream API.
func (b *Bridge) unanswerable(subject string) string {
	switch {
	case b.grammar.Owns(subject) || strings.HasPrefix(subject, peers.Root) || strings.HasPrefix(subject, outbox.Root):
		return "is one of the service's own"
	case strings.HasPrefix(subject, "$"):
		return "belongs to NATS"
	}
	return ""
}
