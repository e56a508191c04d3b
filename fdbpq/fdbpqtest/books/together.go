package books

import "slices"

// An acknowledgement may name further leases (Also). It counts for all of them or for none, so the
// books judge it as one use of each token, and check besides that these agree.

// Leases returns the leases that an operation with a token names.
func (o *Operation) Leases() []Item {
	return append([]Item{{Value: o.Value, ID: o.ID, Fence: o.Fence, Result: o.Result}}, o.Also...)
}

// Parts returns the uses of single tokens that an operation consists of.
func (o *Operation) Parts() []*Operation {
	if len(o.Also) == 0 {
		return []*Operation{o}
	}

	parts := make([]*Operation, 0, 1+len(o.Also))
	for n, item := range o.Leases() {
		part := &Operation{
			Client: o.Client, Queue: o.Queue, Kind: Ack,
			Value: item.Value, ID: item.ID, Fence: item.Fence,
			Outcome: o.Outcome, Text: o.Text, Call: o.Call, Return: o.Return,
			Result: item.Result,
		}
		if slices.Contains(o.Acked, n) {
			part.Acked = []int{0}
		}

		switch {
		case o.Outcome == Stale && !slices.Contains(o.Lost, n):
			part.Outcome = Refused // because of the others
		case len(o.Items) > 0:
			part.Outcome = Done // else there would be no next items
		}

		parts = append(parts, part)
	}

	return parts
}

// heldBy is one of the leases of an acknowledgement whose outcome is unknown.
type heldBy struct {
	item  int64
	id    uint32 // a hash, as in entry
	fence uint16
}

// useParts judges an acknowledgement of several leases.
func (b *Books) useParts(op *Operation, i Intent) {
	if op.Outcome == Stale && len(op.Lost) == 0 {
		b.problem("refused, and none of the leases is said to be lost: %s", op)
	}
	if op.Outcome != Done && op.Outcome != Empty && !op.Open() && len(op.Items) > 0 {
		b.problem("leased, though nothing was acknowledged: %s", op)
	}

	var open []heldBy
	for n, part := range op.Parts() {
		if op.Outcome == Stale && part.Outcome == Refused && i.parts[n].lost {
			b.problem("a lost token is not said to be lost: %s, in %s", part, op)
		}
		b.use(part, i.parts[n])
		if part.Open() {
			open = append(open, heldBy{b.number(part.Value), hash(part.ID), uint16(part.Fence)})
		}
	}

	if open != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.together = append(b.mu.together, open)
	}
}

// outlived reports whether the item was there after the acknowledgement of the lease, which so did
// not count. Another place proves that only if no move gave it: answers to moves may be recorded
// late, and those of several leave the place unknown.
func (e *entry) outlived(l heldBy) bool {
	return e.marks&settled != 0 || e.fence != l.fence || e.renamed == 0 && e.id != l.id
}

// undoTogether takes back what acknowledgements of several leases may have done, if they did not
// count for one of them. It returns how many items are missing that had no other.
func (b *Books) undoTogether() (halves int64) {
	at := func(l heldBy) *entry { return b.at(l.item) }
	b.mu.Lock()
	all := b.mu.together
	b.mu.Unlock()
	mayCount := map[int64]bool{} // items
	for _, t := range all {
		if !slices.ContainsFunc(t, func(l heldBy) bool { return at(l).outlived(l) }) {
			for _, l := range t {
				mayCount[l.item] = true
			}
		}
	}

	for _, t := range all {
		for _, l := range t {
			e := at(l)
			alone := e.marks&(mayAck|ackedAlone) != mayAck
			if !mayCount[l.item] && !e.outlived(l) && !alone {
				b.unmark(e, mayAck)
				if b.isMissing(e) && e.mayVanish() == 0 {
					halves++
				}
			}
		}
	}

	return halves
}

// deny records that the newest lease of an item is said to be lost, though it cannot be over. Only
// a remove, whose answer may come later, can have ended it.
func (b *Books) deny(e *entry, op *Operation) {
	const excuses = settled | mayAck | mayNak | naked | mayBury | buried | mayRemove | purgeable
	excused := e.marks&excuses != 0 || e.moves > 0 || e.id != hash(op.ID)
	if !excused && millis(op.Return) < e.until-b.tolerance {
		e.marks |= denied
	}
}

// checkDenied is called once an item is there whose lease was said to be lost.
func (b *Books) checkDenied(e *entry, value string) {
	if e.marks&denied != 0 {
		e.marks &^= denied
		b.problem("said to be lost, and not: %q until %d ms, fence %d", value, e.until, e.fence)
	}
}
