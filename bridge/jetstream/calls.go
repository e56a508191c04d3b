package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/subjects"
)

// apiCalls is the table of all calls.
var apiCalls = []*apiCall{
	{"INFO", "account_info", 0, 0, (*Face).accountInfo, ""},

	{"STREAM.INFO", "stream_info", 1, 1, (*Face).streamInfo, ""},
	{"STREAM.NAMES", "stream_names", 0, 0, (*Face).streamNames, ""},
	{"STREAM.LIST", "stream_list", 0, 0, (*Face).streamList, ""},
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
	{"CONSUMER.NAMES", "consumer_names", 1, 1, (*Face).consumerNames, ""},
	{"CONSUMER.LIST", "consumer_list", 1, 1, (*Face).consumerList, ""},
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

// apiCall is a row of the table of calls.
type apiCall struct {
	name  string // the tokens after $JS.<domain>.API
	reply string // the type of the reply, without what all types begin and end with
	// least and most are how many tokens may follow the name. The first is the name of a stream.
	least, most int
	// run answers the call. Without it, the call is a pull, or refused with the reason.
	run    func(f *Face, ctx context.Context, r *request) (any, error)
	reason string
}

const (
	maxCallTokens = 3
	maxCall       = 64 << 10 // bytes of a request
	anyTokens     = math.MaxInt
	streamUpdate  = "STREAM.UPDATE"
	durableCreate = "CONSUMER.DURABLE.CREATE"
	typePrefix    = "io.nats.jetstream.api.v1."

	noSequences      = "items of a queue have no sequence numbers"
	noPriorityGroups = "consumers of a queue compete for its items, without priority groups"
	pausedAsWhole    = "consumers cannot be paused one by one: " +
		"pause the queue, with its setting pause_until"
)

// request is a call of the API.
type request struct {
	kind    subjects.Kind
	row     *apiCall // nil if there is no such call
	args    []string // tokens after its name; check moves the first to stream
	stream  stream
	payload []byte
	waited  time.Duration // as in leaf.Message
}

// JetStream's error codes, without the ones used once, in consumers.go.
const (
	errBadRequest   = 10003
	errUnavailable  = 10008
	errConfig       = 10012
	errNoConsumer   = 10014
	errNoResources  = 10023
	errJSON         = 10025
	errNotEmpty     = 10038
	errGeneral      = 10051
	errStreamConfig = 10052
	errNameMismatch = 10056
	errStreamExists = 10058
	errNoStream     = 10059
)

// statuses are the statuses of JetStream's codes, if not 400.
var statuses = map[jetstream.ErrorCode]int{
	errNoStream: 404, errNoConsumer: 404, errGeneral: 500, errConfig: 500, errStreamConfig: 500,
	errUnavailable: 503, errNoResources: 503,
}

// refuse returns one of JetStream's errors. The text is JetStream's own, and mostly says why.
func refuse(code jetstream.ErrorCode, format string, args ...any) error {
	status, text := cmp.Or(statuses[code], 400), fmt.Sprintf(format, args...)
	return &jetstream.APIError{Code: status, ErrorCode: code, Description: text}
}

// failure returns what a client is told of an error.
func (f *Face) failure(err error) *jetstream.APIError {
	if told, ok := errors.AsType[*jetstream.APIError](err); ok {
		return told
	}
	status, text := f.config.ErrorText(err)
	codes := map[int]jetstream.ErrorCode{503: errUnavailable, 429: errNoResources, 500: errGeneral}
	code := cmp.Or(codes[status], errBadRequest)
	return &jetstream.APIError{Code: status, ErrorCode: code, Description: text}
}

// encode returns a reply: the members of the body, or the error, after its type.
func (f *Face) encode(kind string, body any, err error) []byte {
	if err != nil {
		body = map[string]any{"error": f.failure(err)}
	}
	members, _ := json.Marshal(body) // never returns an error for the types of replies
	return slices.Concat([]byte(`{"type":"`+typePrefix+kind+`_response",`), members[1:])
}

// decode reads the payload of a request as JetStream does. An empty payload leaves to as it is.
// Unknown members are refused, so that nothing a client asks for is ignored.
func decode(payload []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	for {
		switch err := d.Decode(to); {
		case err == io.EOF:
			return nil
		case err != nil:
			// The error may repeat a number, of any length.
			return refuse(errJSON, "invalid JSON: %s", wire.Shorten(err.Error()))
		}
	}
}

// decodeQuery is decode for requests that only read. There JetStream ignores everything but JSON.
func decodeQuery(payload []byte, to any) error {
	if text := bytes.TrimSpace(payload); len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return nil
	}
	return decode(payload, to)
}

// expectEmpty returns an error unless a payload is empty, or an object without members.
func expectEmpty(payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	var members map[string]any
	if json.Unmarshal(payload, &members) != nil || members == nil || len(members) > 0 {
		return refuse(errNotEmpty, "expected an empty request payload: leave it out, or send {}")
	}
	return nil
}

// query is a request for a page.
type query struct {
	Offset  int    `json:"offset"`
	Subject string `json:"subject"` // only for streams
}

// page is a reply with a page, or the part of it that says which page it is.
type page struct {
	Total     int `json:"total"`
	Offset    int `json:"offset"`
	Limit     int `json:"limit"`
	Streams   any `json:"streams,omitempty"`
	Consumers any `json:"consumers,omitempty"`
}
