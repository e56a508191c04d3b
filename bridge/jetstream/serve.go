package jetstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// receive takes a message: an acknowledgement, a pull, or another call of the API. It must not
// wait, because the connection reads nothing meanwhile.
func (f *Face) receive(m *leaf.Message) {
	subject, forwarded := strings.CutPrefix(m.Subject, f.forwarded)
	m.Subject = subject

	// The header is for NATS. A request that waits must not keep its memory.
	if len(m.Header) > 0 {
		m.Header, m.Payload = nil, bytes.Clone(m.Payload)
	}

	if strings.HasPrefix(m.Subject, ackPrefix) {
		f.ack(m, forwarded)
		return
	}

	if m.Reply != "" && !f.mayReply(m.Reply) {
		const text = "a request for JetStream was dropped: " +
			"its reply subject belongs to NATS or to this service"
		f.config.Warn(text, "subject", wire.Shorten(m.Subject))
		return
	}

	r, ok := f.domains.parse(m.Subject, m.Payload)
	if !ok { // the server sends nothing else
		return
	}

	ofStream := r.row != nil && r.row.least > 0 && len(r.args) > 0
	if !forwarded && ofStream && f.forward(stream{r.kind, r.args[0]}, m) {
		return
	}

	switch {
	case r.row == nil || r.row.name != countedPull:
		f.call(r, m.Reply)
	case m.Reply == "": // nobody would receive anything
	case r.check() != nil:
		f.noConsumer(m)
	default:
		f.next(r.stream, r.args[0], m)
	}
}

// ack takes an acknowledgement, which another bridge may have forwarded. It does not wait.
func (f *Face) ack(m *leaf.Message, forwarded bool) {
	a, err := f.domains.parseAck(m.Subject)
	var q *dispatch.Queue
	if err == nil {
		q, err = f.queueOf(a.key.stream)
	}

	op := fdbpq.Op{Token: a.token}
	if err != nil || !decodeAckPayload(m.Payload, &op) {
		f.config.Counted(countedAck, true)
		return
	}

	if m.Reply != "" && !f.mayReply(m.Reply) {
		m.Reply = ""
	}
	if !forwarded && f.forward(a.key.stream, m) {
		return
	}

	// The next messages are the answer to a +NXT.
	next, isNext := bytes.CutPrefix(m.Payload, ackNext)
	reply := m.Reply
	if isNext {
		reply = ""
	}
	f.settle(q, &op, reply)

	// Release comes second: a pull that gets the credit must come after the acknowledgement.
	f.release(a.key, keyOf(&a.token), op.Kind == fdbpq.OpExtend)
	if isNext && m.Reply != "" {
		f.next(a.key.stream, a.key.name, &leaf.Message{Reply: m.Reply, Payload: next})
	}
}

// ackSubject is what the subject of an acknowledgement says.
type ackSubject struct {
	key   consumerKey
	token fdbpq.Token
}

// errAck is for subjects under ackPrefix that no bridge has made.
var errAck = errors.New("not the subject of an acknowledgement")

// parseAck parses the subject of an acknowledgement, which setReply has made. Errors wrap errAck or
// fdbpq.ErrToken.
func (d *domains) parseAck(subject string) (a ackSubject, err error) {
	var tokens [ackTokens]string // a slice would be an allocation for each acknowledgement
	n := 0
	for token := range strings.SplitSeq(subject, ".") {
		if n++; n > ackTokens {
			return a, errAck
		}
		tokens[n-1] = token
	}

	kind, ok := d.kindOf(tokens[2])
	if n != ackTokens || !strings.HasPrefix(subject, ackPrefix) || !ok || tokens[3] != d.hash ||
		subjects.ValidateQueueName(tokens[4]) != nil {
		return a, errAck
	}

	a.key = consumerKey{stream{kind, tokens[4]}, tokens[5]}
	a.token, err = fdbpq.ParseToken(tokens[ackTokens-1])
	return a, err
}

// maxAckPayload is how many bytes of an acknowledgement are read: more than is kept of any reason.
const maxAckPayload = 1 << 10

var ackNext = []byte("+NXT")

// decodeAckPayload completes the operation of an acknowledgement, whose token is in the subject. It
// returns false for a payload that JetStream does not know either.
func decodeAckPayload(payload []byte, op *fdbpq.Op) bool {
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

// nakDelay reads the delay of a -NAK: JSON or a duration. The queue's backoff applies if there is
// no readable delay.
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
