package jetstream

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

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

// apiCalls is the table of all calls.
var apiCalls = []*apiCall{
	{"INFO", "account_info", 0, 0, (*Face).accountInfo, ""},

	{"STREAM.INFO", "stream_info", 1, 1, (*Face).streamInfo, ""},
	{"STREAM.NAMES", "stream_names", 0, 0, (*Face).streams, ""},
	{streamList, "stream_list", 0, 0, (*Face).streams, ""},
	{"STREAM.CREATE", "stream_create", 1, 1, (*Face).streamCreate, ""},
	{streamUpdate, "stream_update", 1, 1, (*Face).streamCreate, ""},
	{"STREAM.PURGE", "stream_purge", 1, 1, (*Face).streamPurge, ""},
	{"STREAM.DELETE", "stream_delete", 1, 1, nil, "a queue cannot be deleted through JetStream: " +
		"purge it and delete its consumers, or use pq delete. " +
		"A queue without items, settings and consumers is no longer listed"},
	{"STREAM.MSG.GET", "stream_msg_get", 1, 1, nil, noSequences},
	{"STREAM.MSG.DELETE", "stream_msg_delete", 1, 1, nil, noSequences},

	{"CONSUMER.CREATE", "consumer_create", 1, anyTokens, (*Face).consumerCreate, ""},
	{durableCreate, "consumer_create", 2, 2, (*Face).consumerCreate, ""},
	{"CONSUMER.INFO", "consumer_info", 2, 2, (*Face).consumerInfo, ""},
	{"CONSUMER.NAMES", "consumer_names", 1, 1, (*Face).consumersFrom, ""},
	{consumerList, "consumer_list", 1, 1, (*Face).consumersFrom, ""},
	{"CONSUMER.DELETE", "consumer_delete", 2, 2, (*Face).consumerDelete, ""},
	{"CONSUMER.PAUSE", "consumer_pause", 2, 2, nil, pausedAsWhole},
	{"CONSUMER.RESET", "consumer_reset", 2, 2, nil, noSequences},
	{"CONSUMER.UNPIN", "consumer_unpin", 2, 2, nil, noPriorityGroups},
	{countedPull, "", 2, 2, nil, ""},
}

// parse parses the subject of a call of the API. ok is false if the subject is none, and the
// request has no row if there is no such call.
func (d *domains) parse(subject string, payload []byte) (r *request, ok bool) {
	rest, isJS := strings.CutPrefix(subject, root)
	domain, rest, isAPI := strings.Cut(rest, apiToken)
	kind, ok := d.kindOf(domain)
	if !ok || !isJS || !isAPI {
		return nil, false
	}

	r = &request{kind: kind, payload: payload}
	tokens := strings.Split(rest, ".")
	for n := min(len(tokens), maxCallTokens); n > 0 && r.row == nil; n-- {
		name := strings.Join(tokens[:n], ".")
		named := func(c *apiCall) bool { return c.name == name }
		if i := slices.IndexFunc(apiCalls, named); i >= 0 {
			r.row, r.args = apiCalls[i], tokens[n:]
		}
	}

	return r, true
}

// check checks what all calls have in common.
func (r *request) check() error {
	if r.row == nil {
		return refuse(errBadRequest, "bad request: the API of the queues has no such call")
	}
	if n := len(r.args); n < r.row.least || n > r.row.most {
		return refuse(errBadRequest, "bad request: %s with %d tokens after it", r.row.name, n)
	}
	if r.row.least == 0 {
		return nil
	}

	r.stream, r.args = stream{r.kind, r.args[0]}, r.args[1:]
	switch err := subjects.ValidateQueueName(r.stream.name); {
	case err == nil:
		return nil
	case r.row.reply == "stream_create" || r.row.reply == "stream_update":
		return refuse(errStreamConfig, "a stream is a queue: %v", err)
	default:
		return refuse(errNoStream, "stream not found: %v", err)
	}
}

// call answers a call of the API.
func (f *Face) call(r *request, reply string) {
	if n := len(r.payload); n > maxCall { // many may wait
		const text = "invalid JSON: the request has %d bytes: want at most %d"
		f.answer(r, reply, nil, refuse(errJSON, text, n, maxCall))
		return
	}

	run := func(ctx context.Context) {
		body, err := f.run(ctx, r)
		f.answer(r, reply, body, err)
	}
	if !f.later(run) {
		const text = "insufficient resources: too many requests wait"
		f.answer(r, reply, nil, refuse(errNoResources, text))
	}
}

// run runs a call.
func (f *Face) run(ctx context.Context, r *request) (any, error) {
	switch err := r.check(); {
	case err != nil:
		return nil, err
	case ctx.Err() != nil, r.waited >= dispatch.TurnTime(f.config.RequestTimeout):
		return nil, refuse(errUnavailable, "JetStream system temporarily unavailable: "+
			"the request waited for too long and was not run")
	case r.row.run == nil:
		return nil, refuse(errBadRequest, "bad request: %s", r.row.reason)
	}

	return r.row.run(f, ctx, r)
}

// answer sends the answer of a call, unless it has no reply subject.
func (f *Face) answer(r *request, reply string, body any, err error) {
	name, kind := "unknown", "system"
	if r.row != nil {
		name, kind = r.row.name, r.row.reply
	}
	f.config.Counted(name, err != nil)
	if reply == "" {
		return
	}

	sent := f.out.Publish(&leaf.Message{Subject: reply, Payload: f.encode(kind, body, err)})
	if errors.Is(sent, leaf.ErrTooLarge) {
		err = refuse(errNoResources, "insufficient resources: the answer exceeds max_payload")
		sent = f.out.Publish(&leaf.Message{Subject: reply, Payload: f.encode(kind, nil, err)})
	}
	if sent != nil {
		f.config.Warn(unsentAnswer, "call", name, "error", sent)
	}
}

// accountInfo answers INFO. It counts nothing: the statistics of the bridge do.
func (f *Face) accountInfo(_ context.Context, r *request) (any, error) {
	unlimited := jetstream.AccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1,
	}
	return struct {
		jetstream.Tier
		Domain string             `json:"domain"`
		API    jetstream.APIStats `json:"api"`
	}{jetstream.Tier{Limits: unlimited}, f.domains.names[r.kind], jetstream.APIStats{}}, nil
}
