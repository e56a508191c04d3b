package fdbpq_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// leaseEvent is something that succeeded, as the client saw it.
type leaseEvent struct {
	kind       fdbpq.OpKind
	client     uint64
	id         fdbpq.ID
	value      string // unless it is an operation with a token
	fence      int64  // of the lease
	deliveries int64
	uncounted  bool
	began      int64         // before it, in the order of all events
	ended      int64         // after it
	from, to   time.Time     // the same by the client's clock
	until      time.Time     // of the lease
	delay      time.Duration // of OpNak
}

// leaseAccounts is what clients of one queue did at the same time.
type leaseAccounts struct {
	order atomic.Int64

	mu     sync.Mutex
	events []leaseEvent
	// Of batches that ended with an unknown outcome: how many, what they pushed, and the
	// items that they acknowledged. What they popped is restored, and their leases end.
	unknown     int
	maybePushed map[string]bool
	maybeAcked  map[fdbpq.ID]bool
}

// noteUnknown enters a batch of unknown outcome.
func (a *leaseAccounts) noteUnknown(ops []fdbpq.Op) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unknown++; a.maybePushed == nil {
		a.maybePushed, a.maybeAcked = map[string]bool{}, map[fdbpq.ID]bool{}
	}
	for _, op := range ops {
		switch op.Kind {
		case fdbpq.OpPush:
			a.maybePushed[short(op.Message.Value)] = true
		case fdbpq.OpAck:
			a.maybeAcked[op.Token.ID] = true
		}
	}
}

// short is what the accounts know of a value.
func short(value []byte) string { return string(value[:min(len(value), 20)]) }

// begin is called before an operation, and end after it succeeded.
func (a *leaseAccounts) begin(now func() time.Time) leaseEvent {
	return leaseEvent{began: a.order.Add(1), from: now()}
}

func (a *leaseAccounts) end(e leaseEvent, now func() time.Time) {
	e.ended, e.to = a.order.Add(1), now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

// check checks all that must be true of every item, whatever happened at the same time. The
// clocks of the clients differ by skew at most.
func (a *leaseAccounts) check(t *testing.T, skew time.Duration) {
	t.Helper()
	byID := map[fdbpq.ID][]leaseEvent{}
	for _, e := range a.events {
		byID[e.id] = append(byID[e.id], e)
	}
	for id, events := range byID {
		i := itemAccount{T: t, a: a, id: id, events: events}
		i.checkPlace()
		i.checkSettled()
		i.checkFences()
		i.checkUntil(skew)
	}
}

// itemAccount is all that happened to one item.
type itemAccount struct {
	*testing.T
	a      *leaseAccounts
	id     fdbpq.ID
	events []leaseEvent
}

func (i *itemAccount) of(kinds ...fdbpq.OpKind) (list []leaseEvent) {
	for _, e := range i.events {
		if slices.Contains(kinds, e.kind) {
			list = append(list, e)
		}
	}
	return list
}

// checkPlace checks that the item was pushed once, and kept its value and place.
func (i *itemAccount) checkPlace() {
	pushes, value := i.of(fdbpq.OpPush), i.events[0].value
	if len(pushes) == 1 {
		value = pushes[0].value
	} else if len(pushes) > 1 || !i.a.maybePushed[value] {
		i.Errorf("item %v was pushed %d times: %+v", i.id, len(pushes), i.events)
	}
	for _, e := range i.of(fdbpq.OpPop, fdbpq.OpLease, fdbpq.OpPeek) {
		if e.value != value {
			i.Errorf("item %v was pushed as %q, and came as %q", i.id, value, e.value)
		}
	}
}

// checkSettled checks that the item was settled once, and seen by nobody afterwards.
func (i *itemAccount) checkSettled() {
	settled := i.of(fdbpq.OpPop, fdbpq.OpAck)
	if len(settled) == 0 && i.a.maybeAcked[i.id] {
		return
	}
	if len(settled) != 1 { // what nobody else settled was drained
		i.Errorf("item %v was settled %d times: %+v", i.id, len(settled), settled)
		return
	}
	for _, e := range i.events {
		if e.began > settled[0].ended {
			i.Errorf("item %v came back after %+v: %+v", i.id, settled[0], e)
		}
	}
}

// checkFences checks that each lease has a fence of its own, that its token holds until it is
// settled, given back or delivered again, and never afterwards, and that deliveries are counted.
func (i *itemAccount) checkFences() {
	leases := i.of(fdbpq.OpLease)
	slices.SortFunc(leases, func(a, b leaseEvent) int { return int(a.fence - b.fence) })
	uses := i.of(fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend)
	uncounted := int64(0)
	for n, lease := range leases {
		if n > 0 && leases[n-1].fence == lease.fence {
			i.Errorf("item %v: two leases with one fence: %+v, %+v", i.id, leases[n-1], lease)
		}
		if n > 0 && leases[n-1].began > lease.ended {
			i.Errorf("item %v: fences are not in order: %+v, %+v", i.id, leases[n-1], lease)
		}
		if want := int64(n+1) - uncounted; lease.deliveries != want && i.a.unknown == 0 {
			i.Errorf("item %v: delivery %d of %+v: want %d", i.id, lease.deliveries, lease, want)
		}
		for _, use := range uses {
			if use.fence == lease.fence && use.uncounted {
				uncounted++
			}
			if use.fence < lease.fence && use.began > lease.ended {
				i.Errorf("item %v: %+v with an old token, after %+v", i.id, use, lease)
			}
		}
	}
	for _, nak := range i.of(fdbpq.OpNak) {
		for _, use := range uses {
			if use.fence == nak.fence && use.began > nak.ended {
				i.Errorf("item %v: %+v with a token after %+v", i.id, use, nak)
			}
		}
	}
}

// checkUntil checks that nobody got the item before its lease, or its delay, was over.
func (i *itemAccount) checkUntil(skew time.Duration) {
	leases := i.of(fdbpq.OpLease)
	for _, lease := range leases {
		until := lease.until // the least it can have been
		for _, use := range i.of(fdbpq.OpExtend, fdbpq.OpNak) {
			switch {
			case use.fence != lease.fence:
			case use.kind == fdbpq.OpExtend && use.until.Before(until):
				until = use.until
			case use.kind == fdbpq.OpNak:
				until = use.from.Add(use.delay).Truncate(time.Microsecond)
			}
		}
		until = until.Add(-skew)
		for _, next := range append(leases, i.of(fdbpq.OpPop)...) {
			if next.began > lease.ended && next.to.Before(until) {
				i.Errorf("item %v: %+v ended before %v, when %+v was over", i.id, next, until, lease)
			}
		}
	}
}
