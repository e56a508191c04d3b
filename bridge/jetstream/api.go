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

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// apiCall is a row of the table of calls.
type apiCall struct {
	name  string // the tokens after $JS.<domain>.API
	reply string // the type of the reply, without what all types begin and end with
	// least and most are how many tokens follow the name, the first of which is the name of a stream.
	least, most int
	// run answers it. A call without is a pull, or refused for a reason.
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
)

// request is a call of the API.
type request struct {
	kind    subjects.Kind
	row     *apiCall // nil if there is no such call
	args    []string // what follows its name in the subject; after check without the name of the stream
	stream  stream
	payload []byte
}

// JetStream's codes of errors, but for those that consumers.go uses once.
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

// statuses are the statuses that go with JetStream's codes, if not 400.
var statuses = map[jetstream.ErrorCode]int{
	errNoStream: 404, errNoConsumer: 404, errGeneral: 500, errConfig: 500, errStreamConfig: 500, errUnavailable: 503, errNoResources: 503,
}

// refuse returns one of JetStream's errors. The text is JetStream's own, and a reason if there is one.
func refuse(code jetstream.ErrorCode, format string, args ...any) error {
	return &jetstream.APIError{Code: cmp.Or(statuses[code], 400), ErrorCode: code, Description: fmt.Sprintf(format, args...)}
}

// failure returns what a client is told of an error.
func (f *Face) failure(err error) *jetstream.APIError {
	if told, ok := errors.AsType[*jetstream.APIError](err); ok {
		return told
	}
	status, text := f.config.ErrorText(err)
	codes := map[int]jetstream.ErrorCode{503: errUnavailable, 429: errNoResources, 500: errGeneral}
	return &jetstream.APIError{Code: status, ErrorCode: cmp.Or(codes[status], errBadRequest), Description: text}
}

// encode returns a reply: the members of the body, or the error, after its type.
func (f *Face) encode(kind string, body any, err error) []byte {
	if err != nil {
		body = map[string]any{"error": f.failure(err)}
	}
	members, _ := json.Marshal(body) // never returns an error for the types of replies
	return slices.Concat([]byte(`{"type":"`+typePrefix+kind+`_response",`), members[1:])
}

// decode reads the payload of a request as JetStream does. An empty one leaves to as it is, and what
// is not known is refused: nothing that is asked for is ignored.
func decode(payload []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	for {
		switch err := d.Decode(to); {
		case err == io.EOF:
			return nil
		case err != nil:
			return refuse(errJSON, "invalid JSON: %s", wire.Shorten(err.Error())) // it may repeat a number, of any length
		}
	}
}

// decodeQuery is decode for requests that only read. JetStream ignores there what is no JSON object.
func decodeQuery(payload []byte, to any) error {
	if text := bytes.TrimSpace(payload); len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return nil
	}
	return decode(payload, to)
}

// expectEmpty returns an error unless a payload says nothing.
func expectEmpty(payload []byte) error {
	var members map[string]any
	if len(payload) > 0 && (json.Unmarshal(payload, &members) != nil || members == nil || len(members) > 0) {
		return refuse(errNotEmpty, "expected an empty request payload: leave it out, or send {}")
	}
	return nil
}

// query is what a request for a page says.
type query struct {
	Offset  int    `json:"offset"`
	Subject string `json:"subject"` // only for streams
}

// page is the reply, or the part of one that says which page it is.
type page struct {
	Total     int `json:"total"`
	Offset    int `json:"offset"`
	Limit     int `json:"limit"`
	Streams   any `json:"streams,omitempty"`
	Consumers any `json:"consumers,omitempty"`
}
