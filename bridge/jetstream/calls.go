package jetstream

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

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
	{"STREAM.DELETE", "stream_delete", 1, 1, nil, "a queue cannot be deleted: " +
		"purge it and delete its consumers. " +
		"Without items, settings and consumers it is not listed"},
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
	case ctx.Err() != nil:
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
