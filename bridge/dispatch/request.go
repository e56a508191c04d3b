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

	// Reply says where the answer goes, and Number which request this is at its
	// source. Only the Replier reads them.
	Reply  string
	Number uint64

	// Received is when the request arrived.
	Received time.Time
	// Answered is when its batch was done; set before the Replier is called.
	Answered time.Time
	// Size is about the bytes that the request takes in memory.
	Size int

	span int // number of operations
}

// Replier answers requests: one for each source of them. Its methods are called once
// for each request, for those of one queue in order and one at a time, for those of
// different queues at the same time. They must not wait for other requests.
type Replier interface {
	// Answer delivers the results of the request's operations. Those with an Err
	// failed alone. The slices may be used until Answer returns; the items and what
	// they refer to belong to the Replier.
	Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result)

	// Fail says that no operation of the request was done, or that nobody knows
	// if err wraps ErrUnknownOutcome or kv.ErrCommitUnknown. ops may be used until
	// Fail returns; it is nil for a request that Submit refused.
	Fail(r *Request, ops []fdbpq.Op, err error)
}
