package jetstream

import (
	"bytes"
	"errors"
	"strings"

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

	isAck := strings.HasPrefix(m.Subject, ackPrefix)
	if isAck && hasAckHeader(m.Header) {
		f.config.Counted(countedAck, true)
		f.config.Warn("an acknowledgement cannot be read", "error", errHeader)
		return
	}

	// The header is for NATS. A request that waits must not keep its memory.
	if len(m.Header) > 0 {
		m.Header, m.Payload = nil, bytes.Clone(m.Payload)
	}

	if isAck {
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

	// The owner of the queue would not know how long a request has waited.
	ofStream := r.row != nil && r.row.least > 0 && len(r.args) > 0
	forwardable := !forwarded && ofStream && m.Waited == 0
	if forwardable && f.forward(stream{r.kind, r.args[0]}, m) {
		return
	}

	switch {
	case r.row == nil || r.row.name != countedPull:
		r.waited = m.Waited
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
	key, token, err := f.domains.parseAck(m.Subject)
	var q *dispatch.Queue
	if err == nil {
		q, err = f.queueOf(key.stream)
	}

	op, known := fdbpq.Op{Token: token}, false
	if err == nil {
		known, err = decodeAck(m.Payload, &op)
	}
	if err != nil && !forwarded {
		f.config.Counted(countedAck, true)
		f.config.Warn("an acknowledgement cannot be read", "error", err)
	}
	if !known {
		return
	}

	if m.Reply != "" && !f.mayReply(m.Reply) {
		m.Reply = ""
	}
	// The next messages are the answer to a +NXT.
	next, isNext := bytes.CutPrefix(m.Payload, ackNext)
	oldPull := isNext && m.Waited > 0
	if !forwarded && !oldPull && f.forward(key.stream, m) {
		return
	}

	reply := m.Reply
	if isNext {
		reply = ""
	}
	f.settle(q, &op, reply)

	// Release comes second: a pull that gets the credit must come after the acknowledgement.
	f.release(key, token, op.Kind == fdbpq.OpExtend)
	if isNext && m.Reply != "" {
		pull := leaf.Message{Reply: m.Reply, Payload: next, Waited: m.Waited}
		f.next(key.stream, key.name, &pull)
	}
}

// errAck is for subjects under ackPrefix that no bridge has made.
var errAck = errors.New("not the subject of an acknowledgement")

// parseAck parses the subject of an acknowledgement, which setReply has made. Errors wrap errAck or
// fdbpq.ErrToken.
func (d *domains) parseAck(
	subject string,
) (key consumerKey, token fdbpq.Token, err error) {
	var tokens [ackTokens]string // a slice would be an allocation for each acknowledgement
	n := 0
	for text := range strings.SplitSeq(subject, ".") {
		if n++; n > ackTokens {
			return key, token, errAck
		}
		tokens[n-1] = text
	}

	kind, ok := d.kindOf(tokens[2])
	if n != ackTokens || !strings.HasPrefix(subject, ackPrefix) || !ok || tokens[3] != d.hash ||
		subjects.ValidateQueueName(tokens[4]) != nil {
		return key, token, errAck
	}

	key = consumerKey{stream{kind, tokens[4]}, tokens[5]}
	token, err = fdbpq.ParseToken(tokens[ackTokens-1])
	return key, token, err
}

// errAlso is for several acknowledgements in one, which only the bridge's own subjects take.
var errAlso = errors.New(`"also" in an acknowledgement of JetStream: want one for each message`)

// errHeader is for an acknowledgement in the header, which only the bridge's own subjects take. The
// payload is a result then, and whatever it is, it acknowledges nothing.
var errHeader = errors.New("header " + subjects.HeaderAck + " in an acknowledgement of " +
	"JetStream: want the acknowledgement in the payload, without a result")

// hasAckHeader reports whether a block of headers has the acknowledgement.
func hasAckHeader(block []byte) bool {
	for line := range bytes.Lines(block) {
		name, _, _ := bytes.Cut(line, []byte{':'})
		if strings.EqualFold(string(bytes.TrimSpace(name)), subjects.HeaderAck) {
			return true
		}
	}
	return false
}

// maxAckPayload is how many bytes of an acknowledgement are read: the longest reason that is kept,
// with every character escaped.
const maxAckPayload = 8 << 10

var ackNext, ackNak = []byte("+NXT"), []byte("-NAK")

// decodeAck completes the operation of an acknowledgement, whose token is in the subject. A -NAK
// with options that cannot be read still gives the item back, as in JetStream, and known is true
// beside the error. Without known, nothing is done.
func decodeAck(payload []byte, op *fdbpq.Op) (known bool, err error) {
	payload = payload[:min(len(payload), maxAckPayload)]
	var a subjects.Ack

	// A pull follows +NXT.
	if !bytes.HasPrefix(payload, ackNext) && string(payload) != "+OK" {
		a, err = subjects.ParseAck(payload)
	}

	if len(a.Also) > 0 {
		return false, errAlso
	}

	if err != nil && bytes.HasPrefix(payload, ackNak) {
		known, a.Kind = true, subjects.AckNak
		a.Delay = min(max(a.Delay, 0), fdbpq.MaxDelay) // JetStream knows no bounds
	}

	wire.SetAck(op, &a)
	return known || err == nil, err
}
