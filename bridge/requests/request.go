package requests

import (
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// request is what a message asks for, until it is submitted. Its memory serves many, one after the
// other.
type request struct {
	dispatch.Request
	*replier
	parsed subjects.Request // the subject

	// ops are the operations for a lane. A request without any is a cancel: Wait has the id.
	ops []fdbpq.Op
}

// replier answers one request of a client, even if another bridge received it. It implements
// dispatch.WaitingReplier. The last call, which tells the client the end, frees the replier for
// another request.
type replier struct {
	h        *Handler
	endpoint Endpoint
	verb     *verb        // nil unless the subject was parsed
	from     peers.Origin // the peer that forwarded the request, if any

	reply  string // subject for the answer; "" if nobody waits for one
	batch  int    // how many items it asked for, if several
	frames bool   // replies may be in frames, also several items in a message
	sent   int    // items so far

	cancellable *cancellable // nil unless it has an id
	inspection  *inspection  // nil unless the inspector answers
	audit       *auditEntry  // nil unless it goes into the log
}

// verb says how requests with a subjects.Verb are handled: see verbs.
type verb struct {
	op  fdbpq.OpKind // 0 if the Inspector answers, without an operation
	end fdbpq.End
	// decode completes a request from its message; nil if it needs nothing from there. The first
	// operation has its kind and end. decode may append others, or have the Inspector answer.
	// Errors wrap errBadRequest, or come from package subjects, fdbpq.ParseToken or fdbpq.ParseID.
	decode func(q *request, m *nats.Msg) error
	// reply returns the payload of the reply; nil if that is an item, or has none. It may be in the
	// memory of the encoder.
	reply func(e *encoder, q *dispatch.Queue, ops []fdbpq.Op, results []fdbpq.Result) []byte
	// value says that the payload is not options: nothing bounds it, and nobody need reply.
	value bool
	// several is set for a batch of pushes.
	several bool
	// audit says what the requests change, if the log has to say who asked.
	audit int
}
