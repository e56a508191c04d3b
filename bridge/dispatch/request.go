package dispatch

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Request is a list of operations on one queue that run in one transaction and are answered
// together. The caller sets the exported fields, except Answered. Submit copies the Request.
type Request struct {
	// Queue is the queue whose lane runs the request.
	Queue *Queue
	// Replier answers the request. One Replier may answer many requests.
	Replier Replier

	// Silent says that nobody learns the results of pushes. Later reads must still see them, so a
	// batch with such a push takes no reads that count items.
	Silent bool
	// Lazy says that nobody waits for the answer. The request need not start a batch at once: it
	// waits up to a millisecond for others.
	Lazy bool
	// Received is when the request arrived. If it was read later than that, Waited is by how much.
	Received time.Time
	Waited   time.Duration
	// OutOfTouch, unless nil, reports whether the request must not run any more, because somebody
	// may have answered it. It is called with locks held.
	OutOfTouch func() bool
	// Answered is when the batch of the request finished. It is set before each call of the
	// Replier, and may be read only during that call.
	Answered time.Time
	// Unkept is set like Answered, once the leading acknowledgements are done, if something of
	// their jobs is not kept. The Replier may reset it.
	Unkept *Unkept
	// Size is roughly how many bytes the request takes in memory. It counts against
	// Limits.MaxPendingBytes.
	Size int

	// Pops is how many pops or leases the last operation stands for; 0 means 1. Each but the first
	// follows the one before it (fdbpq.Op.Follows). So a request for many items stays small until
	// its turn comes.
	Pops int
	// Each says that the operations succeed or fail independently. An operation that the batch has
	// no room for fails with fdbpq.ErrNoRoom and is not tried again. The request gets a batch for
	// itself, so there is room for the first.
	Each bool
	// Wait, unless nil, makes pops or leases that find too few items wait for more. The request
	// then consists of pops or leases, each but the first following the one before it. OpAcks that
	// follow each other may come first.
	Wait *Wait

	exclusive bool      // gets a batch for itself
	turnBy    time.Time // in a backlog: when it fails unless its batch has begun
	span      int       // number of operations
	acked     bool      // an earlier batch has done its acknowledgements
	waiter    *waiter   // in a line, or in a batch for a line; else nil

	// answered says that the timers answered the request while its batch ran. Guarded by
	// lane.calling.
	answered bool
}

// operations is how many operations the request will have in a batch.
func (r *Request) operations(ops []fdbpq.Op) int { return len(ops) + max(r.Pops, 1) - 1 }

// WaitHandle refers to a request that waits, or may wait, for Dispatcher.Cancel. Unlike the Request
// it may be used at any time, even after the request has ended. The zero WaitHandle refers to no
// request.
type WaitHandle struct {
	queue *Queue
	wait  *Wait
}

// WaitHandle returns the handle of the request.
func (r *Request) WaitHandle() WaitHandle { return WaitHandle{r.Queue, r.Wait} }

// Wait says how a request waits. It belongs to one request, and must not change after Submit.
type Wait struct {
	// Until is when the request stops waiting. If no batch has looked for it by then, one still
	// does.
	Until time.Time
	// Heartbeat is how often WaitingReplier.Heartbeat is called while the request waits; 0 is
	// never.
	Heartbeat time.Duration
	// OnlyIfEmpty makes the request wait only if its first attempt finds no item at all.
	OnlyIfEmpty bool
	// Retry makes the request wait although its first attempt failed, unless that attempt may have
	// leased something.
	Retry bool
	// Credits, unless nil, limit how many items the request may get. Its operations must be leases.
	Credits *Credits
	// ID is how the sender of the request names it, for the Replier; "" if it has no name.
	ID string

	// All copies of a request share these. The lock of its lane guards them.
	waiter    *waiter // nil until the request joins a line
	cancelled bool
}

// Replier answers requests. Each request gets one last call: Answer, Fail, or a Deliver that
// returns false (see WaitingReplier).
//
// Calls for one request come one at a time. Answers of one queue come one at a time, in the order
// of the requests. Failures of requests that were not run, and calls for other queues, may come
// concurrently. The methods must not wait for other requests.
type Replier interface {
	// Answer delivers one result for each operation. A result with an Err concerns only that
	// operation. The slices are valid until Answer returns; items and what they point to belong to
	// the Replier.
	//
	// After acknowledgements that succeeded, leases for which max_leased leaves no place fail with
	// an error that also wraps fdbpq.ErrEmpty.
	//
	// For a request that has waited, ops are only pops. If they are fewer than the items it still
	// wanted, the last result has an error that applies to the rest too: fdbpq.ErrEmpty if the time
	// is up.
	Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result)

	// Fail reports that no operation of the request was done or, if err wraps ErrUnknownOutcome,
	// that they may have been done. ops is valid until Fail returns, and nil if Submit refused the
	// request.
	//
	// For a request that has waited, err says why it waits no longer. Items delivered before stay
	// delivered. One pop in ops stands for all that were still wanted, as in Submit.
	Fail(r *Request, ops []fdbpq.Op, err error)
}

// WaitingReplier is a Replier that takes the items of a waiting request as they come. With any
// other Replier, a request with a Wait ends with the first items that it gets.
type WaitingReplier interface {
	Replier

	// Deliver delivers items of a request that still waits for more. It is like Answer, and every
	// result has an item. If it returns false, the request ends without another call.
	Deliver(r *Request, ops []fdbpq.Op, results []fdbpq.Result) (more bool)

	// Heartbeat reports that the request still waits, for the given number of items.
	Heartbeat(r *Request, wanted int)
}

// LeadingAcks returns how many acknowledgements the operations of a request begin with. If the
// first of them fails, all do.
func LeadingAcks(ops []fdbpq.Op) (n int) {
	for n < len(ops) && ops[n].Kind == fdbpq.OpAck {
		n++
	}
	return n
}

// Unkept has the numbers of acknowledgements: those whose results are not kept, and those whose
// jobs are kept without their values.
type Unkept struct{ Results, Values []int }

// noteAcked notes that the acknowledgements with these results are done.
func (r *Request) noteAcked(results []fdbpq.Result) {
	r.acked = true
	var u Unkept
	for i := range results {
		if results[i].NotKept {
			u.Results = append(u.Results, i)
		}
		if results[i].ValueDropped {
			u.Values = append(u.Values, i)
		}
	}
	if len(u.Results)+len(u.Values) > 0 {
		r.Unkept = &u
	}
}

// TakesItem reports whether the operations of a request take items out of reach of others.
func TakesItem(ops []fdbpq.Op) bool { return ops[len(ops)-1].Kind.Has(fdbpq.TakesItem) }

// has reports whether one of the operations is of the kind.
func has(ops []fdbpq.Op, kind fdbpq.OpKind) bool {
	return slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return op.Kind == kind })
}

// pushes reports whether the operation pushes, or makes the store larger in another way: a full
// store refuses it.
func pushes(op *fdbpq.Op) bool { return op.Kind.Has(fdbpq.Grows) || len(op.Successors()) > 0 }

// anyPushes reports whether one of the operations pushes.
func anyPushes(ops []fdbpq.Op) bool {
	return slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return pushes(&op) })
}

// itemsFilled returns how many items the operations may make ready.
func itemsFilled(ops []fdbpq.Op) (n int) {
	for i := range ops {
		// A Backoff, or an Op.At, may turn out to be no delay.
		if ops[i].Kind.Has(fdbpq.FillsQueue) && ops[i].Delay <= 0 {
			n++
		}
	}

	return n
}

// leasesEnded returns how many leases the operations may end.
func leasesEnded(ops []fdbpq.Op) (n int) {
	for i := range ops {
		if ops[i].Kind.Has(fdbpq.EndsLease) {
			n++
		}
	}

	return n
}

// nextDue returns when the first item that the operations hold back falls due; zero if they hold
// none back.
func nextDue(ops []fdbpq.Op, results []fdbpq.Result) (due time.Time) {
	for i := range ops {
		if results[i].Err != nil {
			continue
		}

		at := results[i].Lease.Until
		if ops[i].Kind.Has(fdbpq.FallsDue) {
			at = results[i].NextDue
		}

		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}

	return due
}

// hasNoRoom reports whether a batch had no room for an operation, which a later one will have.
func hasNoRoom(err error) bool { return errors.Is(err, fdbpq.ErrNoRoom) }

// appendPops appends n operations like the pop or lease before them.
func appendPops(ops []fdbpq.Op, pop fdbpq.Op, n int) []fdbpq.Op {
	pop.Follows = true
	for range n {
		ops = append(ops, pop)
	}
	return ops
}

// toRetry returns the operations that another batch must try again, because this one had no room
// for them.
func toRetry(ops []fdbpq.Op, results []fdbpq.Result) (left []fdbpq.Op) {
	// The acknowledgements are done, so only the leases behind them are left.
	acks := LeadingAcks(ops)
	if 0 < acks && acks < len(ops) && results[0].Err == nil && hasNoRoom(results[acks].Err) {
		left = ops[acks:]
		left[0].Follows = false
		for i := range left {
			left[i].Lease = cmp.Or(left[i].Lease, results[0].LeaseLength())
			left[i].Holder = cmp.Or(left[i].Holder, results[0].LeaseHolder())
		}
		return left
	}

	if hasNoRoom(results[0].Err) {
		return ops
	}

	// Reads can be repeated as a whole, whichever of them had no room.
	lacksRoom := func(r fdbpq.Result) bool { return hasNoRoom(r.Err) }
	if !ops[0].Kind.Writes() && slices.ContainsFunc(results, lacksRoom) {
		return ops
	}
	return nil
}
