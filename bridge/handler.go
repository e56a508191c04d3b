package bridge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// request is one that was found good, without its operation.
type request struct {
	queue    *queue
	endpoint *endpoint
	reply    string
	received time.Time
	size     int  // bytes of payload and headers, about, in memory
	restores bool // pushes an item again whose reply could not be sent
	origin   origin
}

// handler takes the messages of one subscription. NATS calls it from one
// goroutine, in the order in which each publisher sent. It parses, checks and
// hands over to a lane; it never waits and never touches the store.
type handler struct {
	b      *Bridge
	handed bool // the messages come from other bridges: see router.take
}

func newHandler(b *Bridge) *handler { return &handler{b: b} }

// handle is the nats.MsgHandler.
func (h *handler) handle(m *nats.Msg) { h.take(m, origin{}) }

// take takes a message that NATS or another bridge gave to this one.
func (h *handler) take(m *nats.Msg, o origin) {
	r := request{endpoint: h.b.endpoints.unknown, reply: m.Reply, received: time.Now(), origin: o}
	var op fdbpq.Op
	if err := h.accept(m, &r, &op); err != nil {
		h.b.refuse(&r, err)
	}
}

// A NATS server closes a connection that sends it a line of more than 4096
// bytes, in which the reply subject is not alone: another bridge's subject, or
// the sizes of headers and payload, come with it.
const (
	// maxReply is the longest reply subject of a request that is run.
	maxReply = 2048
	// maxSendable is the longest one that an error can be sent to.
	maxSendable = 4000
)

// otherAccounts begins the reply subjects of requests that came from another account
// through an import. NATS takes no message from a client with such a reply subject, so
// these cannot be handed to another bridge.
const otherAccounts = "_R_."

// accept checks the message and hands it over. If it returns an error the
// request was not taken.
func (h *handler) accept(m *nats.Msg, r *request, op *fdbpq.Op) error {
	if why := h.b.unanswerable(m.Reply); why != "" {
		r.reply = ""
		return fmt.Errorf("%w: reply subject %.64q %s: want an inbox", ErrBadRequest, m.Reply, why)
	}
	if len(m.Reply) > maxReply {
		if len(m.Reply) > maxSendable {
			r.reply = ""
		}
		return fmt.Errorf("%w: the reply subject has %d bytes: want at most %d", ErrBadRequest, len(m.Reply), maxReply)
	}
	if !h.handed { // another bridge has done it, and hands over no headers
		if err := checkBlock(m.Header, m.Size()-len(m.Subject)-len(m.Reply)-len(m.Data)); err != nil {
			return err
		}
	}
	parsed, err := h.b.grammar.Parse(m.Subject)
	if err != nil {
		return err
	}
	r.endpoint = h.b.endpoints.of(&parsed)
	if m.Reply == "" && !isPush(parsed.Verb) {
		return fmt.Errorf("%w: %s without a reply subject: nobody would receive what it returns", ErrBadRequest, parsed.Verb)
	}
	if err := decode(m, parsed, op); err != nil {
		return err
	}
	headers := headerSize(op.Message.Headers)
	r.size = len(m.Data) + headers
	if limit := h.b.nc.MaxPayload; headers > 0 && int64(r.size) > limit() {
		return fmt.Errorf("%w: %d bytes with headers: the server carries at most %d", ErrTooLarge, r.size, limit())
	}
	r.size += headerMemory(op.Message.Headers)
	if r.queue, err = h.b.queues.get(parsed.Kind, parsed.Queue); err != nil {
		return err
	}
	if router := h.b.router; router != nil && op.Kind == fdbpq.OpPop {
		if !h.handed && !strings.HasPrefix(m.Reply, otherAccounts) {
			if passed, err := router.pass(m, r); passed || err != nil {
				return err
			}
		}
		router.direct.popped(m.Subject)
	}
	op.Queue = r.queue.target
	return r.queue.lane.add(r, op)
}

// unanswerable says why no reply may be sent to a subject, as the end of a sentence;
// "" if it may. Clients choose it, and the bridge may publish where they may not. A
// reply could come back to a bridge: as a request, or as something that another
// bridge said. And what begins with "$" is NATS's own, above all the API of
// JetStream.
func (b *Bridge) unanswerable(subject string) string {
	switch {
	case b.grammar.Owns(subject) || strings.HasPrefix(subject, internalRoot):
		return "is one of the service's own"
	case strings.HasPrefix(subject, "$"):
		return "belongs to NATS"
	}
	return ""
}

// refuse answers a request that failed before its batch, or with all of it.
func (b *Bridge) refuse(r *request, err error) {
	b.publish(b.refusal(r, err))
	r.origin.answered()
}

// refusal counts a request that failed, and returns the reply, nil if there is
// nobody to tell.
func (b *Bridge) refusal(r *request, err error) *nats.Msg {
	refused := refusalOf(err)
	r.endpoint.done(time.Since(r.received), refused)
	if r.reply == "" {
		b.metrics.unanswered.Inc()
		b.quiet.unanswered.warn("a request without a usable reply subject failed",
			"endpoint", r.endpoint.name, "error", err)
		return nil
	}
	return &nats.Msg{Subject: r.reply, Header: refused.header}
}

// publish sends a reply that nothing is lost with and that belongs to no batch. nil
// is none.
func (b *Bridge) publish(m *nats.Msg) {
	if m == nil {
		return
	}
	if err := b.unconfirmed.publish(m); err != nil {
		b.replyFailed(err)
	}
}

// send does the same for a reply of a batch.
func (b *Bridge) send(m *nats.Msg) {
	if m == nil {
		return
	}
	if err := b.nc.PublishMsg(m); err != nil {
		b.replyFailed(err)
	}
}

func (b *Bridge) replyFailed(err error) {
	b.metrics.replyFailures.Inc()
	if b.stopping.Load() {
		b.unsent.Add(1)
	}
	b.quiet.replies.warn("a reply could not be sent", "error", err)
}

// answer sends the reply of a request that was run. An error means that NATS
// did not take it; if that is because of the message the client was told so.
func (b *Bridge) answer(e *encoder, r *request, result *fdbpq.Result, kind fdbpq.OpKind) error {
	if r.reply == "" {
		return nil
	}
	switch kind {
	case fdbpq.OpPush:
		return b.nc.Publish(r.reply, e.pushed(r.queue, &result.Item.ID))
	case fdbpq.OpLen:
		return b.nc.Publish(r.reply, e.length(r.queue, result.Len))
	default:
		return b.answerItem(e, r, &result.Item)
	}
}

// answerItem sends an item. A message as large as the server carries leaves no
// room for our headers: it comes without them rather than not at all.
func (b *Bridge) answerItem(e *encoder, r *request, item *fdbpq.Item) error {
	m := nats.Msg{Subject: r.reply, Header: e.item(r.queue, item), Data: item.Value}
	err := b.nc.PublishMsg(&m)
	if errors.Is(err, nats.ErrMaxPayload) {
		m.Header = e.itemAlone(item)
		err = b.nc.PublishMsg(&m)
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: item %s of queue %s is from when the server carried larger messages; it stays in the queue: %w",
			ErrTooLarge, item.ID, r.queue.name, err)
	case errors.Is(err, nats.ErrBadHeaderMsg):
		err = fmt.Errorf("%w: item %s of queue %s was not pushed over NATS and has headers that it cannot carry; it stays in the queue: %w",
			ErrInternal, item.ID, r.queue.name, err)
	default:
		return err
	}
	b.send(&nats.Msg{Subject: r.reply, Header: refusalOf(err).header})
	return err
}
