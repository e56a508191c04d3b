package jetstream

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// maxAckPayload is how much of an acknowledgement is read: more than counts of any reason.
const maxAckPayload = 1 << 10

var ackNext = []byte("+NXT")

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

	op.Queue = q.Target
	reply := m.Reply
	next, isNext := bytes.CutPrefix(m.Payload, ackNext)
	if isNext {
		reply = "" // the next messages are answer enough
	}
	f.acks.add(q, &op, reply)

	f.settle(a.key, keyOf(&a.token), op.Kind == fdbpq.OpExtend) // pulls that now have a place come after that
	if isNext && m.Reply != "" {
		f.next(a.key.stream, a.key.name, &leaf.Message{Reply: m.Reply, Payload: next})
	}
}

// decodeAck completes the operation of an acknowledgement. It returns false for a payload that
// JetStream does not know either.
func decodeAck(payload []byte, op *fdbpq.Op) bool {
	payload = payload[:min(len(payload), maxAckPayload)]
	is := func(word string) bool { return bytes.HasPrefix(payload, []byte(word)) }
	switch {
	case len(payload) == 0, is("+ACK"), is("+NXT"), string(payload) == "+OK":
		op.Kind = fdbpq.OpAck
	case is("-NAK"):
		op.Kind, op.Delay = fdbpq.OpNak, nakDelay(bytes.TrimSpace(payload[len("-NAK"):]))
	case is("+WPI"):
		op.Kind = fdbpq.OpExtend
	case is("+TERM"):
		op.Kind, op.Reason = fdbpq.OpTerm, string(bytes.TrimSpace(payload[len("+TERM"):]))
	default:
		return false
	}
	return true
}

// nakDelay reads the delay of a -NAK: JSON or a duration. Without one that can be read, the queue's
// backoff counts.
func nakDelay(text []byte) time.Duration {
	var options struct {
		Delay time.Duration `json:"delay"`
	}
	var err error
	switch {
	case len(text) == 0:
		return fdbpq.Backoff
	case text[0] == '{':
		err = json.Unmarshal(text, &options)
	default:
		options.Delay, err = time.ParseDuration(string(text))
	}
	if err != nil {
		return fdbpq.Backoff
	}
	return min(max(options.Delay, 0), fdbpq.MaxDelay)
}
