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
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

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
	streamList    = "STREAM.LIST"
	streamUpdate  = "STREAM.UPDATE"
	consumerList  = "CONSUMER.LIST"
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
