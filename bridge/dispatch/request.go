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
	// Replier answers the request: it alone, or all of one source.
	Replier Replier

	// Silent says that nobody learns the results, which restricts what may share a batch with its
	// pushes: later reads see them all the same.
	Silent bool
	// Lazy says that nobody waits for the answer, so the request need not begin a batch at once: it
	// waits up to lazyTime for others.
	Lazy bool
	// Received is when the request arrived.
	Received time.Time
	// Answered is when its batch finished. It is set before each call of the Replier, and only to
	// be read during that call.
	Answered time.Time
	// Size is roughly how many bytes the request takes in memory.
	Size int

	// Pops is how many pops or leases the last operation stands for, each but the first following
	// the one before it; 0 and 1 are that operation alone. A request for many items is small until
	// its turn comes.
	Pops int
	// Each says that each operation has a result of its own: those that the batch has no room for
	// are answered with fdbpq.ErrNoRoom, and not tried again. The request shares its batch with
	// nobody, so that the first has room.
	Each bool
	// Wait has a request whose pops find too few items wait for more. nil never waits. Such
	// a request consists of pops or leases, each but the first following the one before
	// it; OpAcks that follow each other may come first.
	Wait *Wait

	alone    bool      // it shares its batch with nobody
	turnBy   time.Time // in the backlog: when it fails unless its batch has begun
	span     int       // number of operations
	acked    bool      // an earlier batch has done its acknowledgements
	waiter   *waiter   // whose request it is or, in a batch, whose operations; nil for others
	answered bool      // in a batch: before that ended. Belongs to whoever may call the Replier
}

// WaitHandle is a handle of a request that waits, or may: see Dispatcher.Cancel. It stays valid
// when the request has ended, and unlike the Request it may be used at any time. The zero
// WaitHandle is that of a request without a Wait.
type WaitHandle struct {
	queue *Queue
	wait  *Wait
}

// WaitHandle returns the handle of the request.
func (r *Request) WaitHandle() WaitHandle { return WaitHandle{r.Queue, r.Wait} }

// operations is how many operations the request will have in a batch.
func (r *Request) operations(ops []fdbpq.Op) int { return len(ops) + max(r.Pops, 1) - 1 }

// Wait says how a request waits. It belongs to one request, and must not change once that is
// submitted.
type Wait struct {
	// Until is when the request is answered at the latest.
	Until time.Time
	// Heartbeat is how often WaitingReplier.Heartbeat is called while the request waits; 0 is
	// never.
	Heartbeat time.Duration
	// OnlyIfEmpty makes the request wait only if its first attempt finds no item at all.
	OnlyIfEmpty bool
	// Retry makes the request wait although its first attempt failed, unless that may have leased
	// something.
	Retry bool
	// Credits, unless nil, bound what the request may get. It then wants leases.
	Credits *Credits
	// ID is how the source knows the request; "" if it does not have to.
	ID string

	// All copies of a request share these, and the lock of its lane guards them.
	waiter    *waiter // once it has one
	cancelled bool
}

// Replier answers requests. The last call for each is one Answer or one Fail; for one that waits it
// may be a Deliver, see WaitingReplier. Calls for one request come one at a time. Answers of one
// queue come in order and one at a time. Failures of requests that were not run, and calls for
// other queues, may come at the same time. The methods must not wait for other requests.
type Replier interface {
	// Answer delivers the results of the request's operations. A result with an Err concerns that
	// operation alone. Leases that follow acknowledgements which are done, and that max_leased
	// leaves no place for, have an error that wraps fdbpq.ErrEmpty as well. The slices are valid
	// until Answer returns; the items and what they point to belong to the Replier.
	//
	// For a request that has waited, ops are pops alone. If there are fewer than the items that
	// were not delivered before, the last result has an error, ErrEmpty if the time is up, which is
	// that of the others too.
	Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result)

	// Fail reports that no operation of the request was done or, if err wraps ErrUnknownOutcome or
	// kv.ErrCommitUnknown, that this is unknown. ops is valid until Fail returns; it is nil for a
	// request that Submit refused. For a request that has waited, err says why it waits no longer,
	// and what was delivered before stays delivered. One pop stands for all that are left of it, as
	// in Submit.
	Fail(r *Request, ops []fdbpq.Op, err error)
}

// WaitingReplier is a Replier of requests that wait and gets their items as they come. A request
// with a Wait whose Replier is none ends with the first items that it gets.
type WaitingReplier interface {
	Replier

	// Deliver delivers items of a request that goes on waiting for more. All results have
	// an item; otherwise it is as Answer. If it returns false, nobody is there to receive
	// more: the request ends without another call.
	Deliver(r *Request, ops []fdbpq.Op, results []fdbpq.Result) (more bool)

	// Heartbeat reports that the request still waits, for the given number of items.
	Heartbeat(r *Request, wanted int)
}
