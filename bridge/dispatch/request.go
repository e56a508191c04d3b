package dispatch

import (
	"cmp"
	"errors"
	"slices"
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

// operations is how many operations the request will have in a batch.
func (r *Request) operations(ops []fdbpq.Op) int { return len(ops) + max(r.Pops, 1) - 1 }

// LeadingAcks returns how many acknowledgements the operations of a request begin with. They are
// tied to each other, so all of them have failed if the first has.
func LeadingAcks(ops []fdbpq.Op) (n int) {
	for n < len(ops) && ops[n].Kind == fdbpq.OpAck {
		n++
	}
	return n
}

func returnsItem(k fdbpq.OpKind) bool {
	return k == fdbpq.OpPop || k == fdbpq.OpPeek || k == fdbpq.OpLease || k == fdbpq.OpGet
}

// takesItem reports whether the operation takes items out of reach of others.
func takesItem(k fdbpq.OpKind) bool { return k == fdbpq.OpPop || k == fdbpq.OpLease }

// movesItem reports whether the operation reads or writes an item that the request does not
// contain.
func movesItem(k fdbpq.OpKind) bool {
	switch k {
	case fdbpq.OpNak, fdbpq.OpTerm, fdbpq.OpExtend, fdbpq.OpMove, fdbpq.OpRelease, fdbpq.OpRedriveItem:
		return true
	}
	return returnsItem(k)
}

// has reports whether one of the operations is of the kind.
func has(ops []fdbpq.Op, kind fdbpq.OpKind) bool {
	return slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return op.Kind == kind })
}

// itemsFilled returns how many items the operations can make ready.
func itemsFilled(ops []fdbpq.Op) (n int) {
	for i := range ops {
		switch ops[i].Kind {
		case fdbpq.OpRestore, fdbpq.OpMove, fdbpq.OpRelease:
			n++
		case fdbpq.OpPush, fdbpq.OpNak:
			if ops[i].Delay <= 0 { // with Backoff there may be no delay, nor with Op.At
				n++
			}
		}
	}
	return n
}

// leasesEnded returns how many leases the operations can end.
func leasesEnded(ops []fdbpq.Op) (n int) {
	for i := range ops {
		switch ops[i].Kind {
		case fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpTerm, fdbpq.OpRemove, fdbpq.OpRelease, fdbpq.OpPurge:
			n++
		}
	}
	return n
}

// nextDue returns when the first item that the operations hold back falls due; zero if they
// hold none.
func nextDue(ops []fdbpq.Op, results []fdbpq.Result) (due time.Time) {
	for i := range ops {
		at := results[i].Lease.Until
		switch {
		case results[i].Err != nil:
			continue
		case ops[i].Kind == fdbpq.OpNak || ops[i].Kind == fdbpq.OpPush || ops[i].Kind == fdbpq.OpSetSchedule:
			at = results[i].NextDue
		}
		if at.IsZero() {
			continue
		}
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// freesPlace reports whether one of the operations has made room for a lease.
func freesPlace(results []fdbpq.Result) bool {
	return slices.ContainsFunc(results, func(r fdbpq.Result) bool { return r.Freed })
}

// hasNoRoom reports whether an operation failed with an error that goes away by itself.
func hasNoRoom(err error) bool { return errors.Is(err, fdbpq.ErrNoRoom) }

// appendPops appends n operations like the pop or lease before them.
func appendPops(ops []fdbpq.Op, pop fdbpq.Op, n int) []fdbpq.Op {
	pop.Follows = true
	for range n {
		ops = append(ops, pop)
	}
	return ops
}

// toRetry returns the operations that are to be tried again with another batch, because this one
// had no room for them. Acknowledgements before them are done.
func toRetry(ops []fdbpq.Op, results []fdbpq.Result) (left []fdbpq.Op) {
	if acks := LeadingAcks(ops); 0 < acks && acks < len(ops) && results[0].Err == nil && hasNoRoom(results[acks].Err) {
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

	// What only looks can be done again as a whole, whichever of its operations had no room.
	if !ops[0].Kind.Writes() && slices.ContainsFunc(results, func(r fdbpq.Result) bool { return hasNoRoom(r.Err) }) {
		return ops
	}
	return nil
}

// sizeOf returns the approximate size of a message in bytes.
func sizeOf(m *fdbpq.Message) int {
	n := len(m.Value)
	for name, values := range m.Headers {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}
