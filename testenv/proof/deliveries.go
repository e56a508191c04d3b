package proof

import (
	"cmp"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// use records what an operation with a token did, or may have done.
func (a *account) use(op *Operation) {
	id, err := fdbpq.ParseID(op.ID)
	if err != nil || a.pushes[op.Value] == nil {
		a.problem("%s: its token names no item: %v", describe(op), err)
		return
	}
	l := lease{id, op.Fence}
	counts := op.Outcome == Done || op.Outcome == Empty || op.Outcome == TooLarge
	switch {
	case op.Kind.acks() && counts:
		a.settle(op, op.Value, id)
	case op.Kind.acks() && op.open():
		a.maybe[op.Value] = true
	case op.Kind == Nak && counts:
		if before := a.naks[l]; before != nil {
			a.problem("one token, used twice: %s and %s", describe(before), describe(op))
		}
		a.naks[l] = op
	case op.Kind == Nak && op.open():
		a.mayNaks[l] = append(a.mayNaks[l], op)
	case op.Kind == Extend && counts && op.Until > 0:
		a.checkUntil(op, op.Value, op.Until)
	case op.Kind == Extend && op.open():
		a.extended[l] = true
	}
}

// checkUntil checks the end of a lease against its length.
func (a *account) checkUntil(op *Operation, value string, until int64) {
	least, most := op.Call+op.Wait-a.tolerance, op.Return+op.Wait+a.tolerance
	if until < least || until > most {
		a.problem("%s: the lease of %q is over at %v, want %v to %v", describe(op), value,
			time.Duration(until), time.Duration(least), time.Duration(most))
	}
}

// checkSettled checks that nobody got or saw an item in a request sent after it was
// settled.
func (a *account) checkSettled(ops []*Operation) {
	for _, op := range ops {
		for _, item := range op.items() {
			if end := a.settled[item.Value]; end != nil && end != op && end.Return < op.Call {
				a.problem("came back: %q, settled by %s, in %s", item.Value, describe(end), describe(op))
			}
		}
	}
}

// checkDeliveries checks that each lease of an item has a fence of its own, that none comes
// after the one that was acknowledged, and that deliveries are counted.
func (a *account) checkDeliveries() {
	unknown := 0
	for id, list := range a.leases {
		slices.SortFunc(list, func(x, y delivery) int { return cmp.Compare(x.item.Fence, y.item.Fence) })
		before := delivery{}
		for _, next := range list {
			unknown += a.checkDelivery(id, before, next)
			before = next
		}
		if end := a.settled[before.item.Value]; end != nil && end.acknowledges(id) && end.Fence < before.item.Fence {
			a.problem("%q was delivered again, by %s, though %s was done", before.item.Value, describe(before.op), describe(end))
		}
	}
	may := a.openFences
	for _, naks := range a.mayNaks {
		may += len(naks)
	}
	if unknown > may {
		a.problem("%d fences are of no known lease, and only %d operations can have used one", unknown, may)
	}
}

// checkDelivery compares a lease with the one before it, zero if there is none. It returns
// how many leases and negative acknowledgements of unknown outcome came in between.
func (a *account) checkDelivery(id fdbpq.ID, before, next delivery) (unknown int) {
	l := lease{id, before.item.Fence}
	fence, deliveries := before.item.Fence+1, before.item.Deliveries+1
	if nak := a.naks[l]; nak != nil {
		fence++
		if nak.Snooze {
			deliveries--
		}
	}
	if unknown = int(next.item.Fence - fence); unknown < 0 {
		a.problem("two deliveries of %q, and a token that holds for both: fence %d in %s, want %d",
			next.item.Value, next.item.Fence, describe(next.op), fence)
		return 0
	}
	least, most := deliveries, deliveries+int64(unknown)
	for _, nak := range a.mayNaks[l] {
		if nak.Snooze && unknown > 0 {
			least--
		}
	}
	if got := next.item.Deliveries; got < least || got > most {
		a.problem("delivery %d of %q in %s, want %d to %d", got, next.item.Value, describe(next.op), least, most)
	}
	return unknown
}

// acknowledges reports whether an operation acknowledges an item of that id. Fences of different ids cannot be compared.
func (o *Operation) acknowledges(id fdbpq.ID) bool { return o.Kind.acks() && o.ID == id.String() }

// mayCount reports whether an operation of unknown outcome with a token may have counted:
// whether nothing shows that the token still held later, or that somebody else had the item.
func (a *account) mayCount(op *Operation) bool {
	id, _ := fdbpq.ParseID(op.ID)
	if op.Kind.acks() && a.settled[op.Value] != nil {
		return false
	}
	for _, l := range a.leases[id] {
		if op.Kind.acks() && l.item.Fence > op.Fence || op.Kind == Nak && l.item.Fence == op.Fence+1 {
			return false
		}
	}
	if end := a.settled[op.Value]; op.Kind == Nak && end != nil && end.acknowledges(id) && end.Fence == op.Fence {
		return false
	}
	return op.Kind != Nak || a.naks[lease{id, op.Fence}] == nil
}

// hasLeft reports whether a move has given the item another id.
func (e *entry) hasLeft(id string) bool { return e.renamed > 0 && e.moves == 0 && e.id != hash(id) }
