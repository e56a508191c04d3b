package jetstream

import (
	"bytes"
	"strings"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// receive takes a message. It must not wait, because the connection reads nothing meanwhile.
func (f *Face) receive(m *leaf.Message) {
	subject, forwarded := strings.CutPrefix(m.Subject, f.forwarded)
	m.Subject = subject
	if len(m.Header) > 0 { // which is for NATS: a request that waits must not keep its memory
		m.Header, m.Payload = nil, bytes.Clone(m.Payload)
	}
	if strings.HasPrefix(m.Subject, ackPrefix) {
		f.ack(m, forwarded)
		return
	}
	if m.Reply != "" && !f.mayReply(m.Reply) {
		f.config.Warn("a request for JetStream was dropped: its reply subject belongs to NATS or to this service", "subject", wire.Shorten(m.Subject))
		return
	}
	switch r, ok := f.domains.parse(m.Subject, m.Payload); {
	case !ok: // the server sends nothing else
	case !forwarded && r.row != nil && r.row.least > 0 && len(r.args) > 0 && f.forward(stream{r.kind, r.args[0]}, m):
	case r.row == nil || r.row.name != countedPull:
		f.call(r, m.Reply)
	case m.Reply == "": // nobody would receive anything
	case r.check() != nil:
		f.noConsumer(m)
	default:
		f.next(r.stream, r.args[0], m)
	}
}

// ack takes an acknowledgement, which another bridge may have forwarded. Nothing in it waits.
func (f *Face) ack(m *leaf.Message, forwarded bool) {
	a, err := f.domains.parseAck(m.Subject)
	var q *dispatch.Queue
	if err == nil {
		q, err = f.queueOf(a.key.stream)
	}
	op := fdbpq.Op{Token: a.token}
	if err != nil || !decodeAck(m.Payload, &op) {
		f.config.Counted(countedAck, true)
		return
	}
	if m.Reply != "" && !f.mayReply(m.Reply) {
		m.Reply = ""
	}
	if !forwarded && f.forward(a.key.stream, m) {
		return
	}

	next, isNext := bytes.CutPrefix(m.Payload, ackNext)
	reply := m.Reply
	if isNext {
		reply = "" // the next messages are answer enough
	}
	f.settle(q, &op, reply)
	f.release(a.key, keyOf(&a.token), op.Kind == fdbpq.OpExtend) // pulls that now have a credit come after that
	if isNext && m.Reply != "" {
		f.next(a.key.stream, a.key.name, &leaf.Message{Reply: m.Reply, Payload: next})
	}
}
