package dispatch

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Request is a span of operations that run in one transaction and are answered
// together.
type Request struct {
	// Queue is the queue whose lane runs the request.
	Queue *Queue
	// Replier answers the request.
	Replier Replier

	// Reply is the subject for the answer, and Number is how the source knows the request.
	// They belong to the source and its Replier. The dispatcher only asks whether Reply is
	// empty, because a push that nobody waits for restricts what may share its batch.
	Reply  string
	Number uint64

	// Received is when the request arrived.
	Received time.Time
	// Answered is when its batch finished; it is set before the Replier is called.
	Answered time.Time
	// Size is roughly how many bytes the request takes in memory.
	Size int

	span int // number of operations
}

// Replier answers the requests of one source. Exactly one of its methods is called for
// each request. Answers of one queue come in order and one at a time. Failures of requests
// that were not run, and calls for other queues, may come at the same time. The methods must
// not wait for other requests.
type Replier interface {
	// Answer delivers the results of the request's operations. A result with an Err
	// concerns that operation alone. The slices are valid until Answer returns; the
	// items and what they point to belong to the Replier.
	Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result)

	// Fail reports that no operation of the request was done or, if err wraps
	// ErrUnknownOutcome or kv.ErrCommitUnknown, that this is unknown. ops is valid
	// until Fail returns; it is nil for a request that Submit refused.
	Fail(r *Request, ops []fdbpq.Op, err error)
}
