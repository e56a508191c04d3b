package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

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

// LeadingAcks returns how many acknowledgements the operations of a request begin with. They are
// tied to each other, so all of them have failed if the first has.
func LeadingAcks(ops []fdbpq.Op) (n int) {
	for n < len(ops) && ops[n].Kind == fdbpq.OpAck {
		n++
	}
	return n
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
