package books

func (b *Books) pop(e *entry, op *Operation, value string) {
	if e.isBuried() {
		b.problem("came back: %q, which was given up, in %s", value, op)
	}
	b.checkFree(e, millis(op.Return), value, op)
	b.checkDenied(e, value)
	b.settle(e, op, value, popped)
	e.got = millis(op.Return)
}

// checkFree checks that the newest lease, or the delay after it, can have ended when a client got
// the item.
func (b *Books) checkFree(e *entry, got int32, value string, op *Operation) {
	switch {
	case e.fence == 0:
		if got < e.until-2*b.tolerance {
			b.problem("too early: %q, by %s at %d ms, ready only at %d ms", value, op, got, e.until)
		}
	case e.marks&naked != 0 && got < e.until-2*b.tolerance:
		b.problem("too early: %q, by %s at %d ms, delayed until %d ms", value, op, got, e.until)
	case e.marks&mayNak == 0 && got < e.until-b.tolerance:
		b.problem("held by two: %q, by %s at %d ms, leased until %d ms", value, op, got, e.until)
	}
}

func (b *Books) lease(e *entry, op *Operation, item Item) {
	fence, got, until := uint16(item.Fence), millis(op.Return), millis(item.Until)
	if e.isMortal() && item.Deliveries > MaxDeliver {
		b.problem("delivered too often: %q, %d times, by %s", item.Value, item.Deliveries, op)
	}
	b.checkUntil(op, item.Value, item.Until)
	newer := fence > e.fence
	switch {
	case e.marks&popped != 0 && millis(op.Call) > e.got:
		b.problem("came back: %q, popped at %d ms, in %s", item.Value, e.got, op)
	case newer && (e.marks&acked != 0 || e.isBuried()):
		b.problem("came back: %q, settled with fence %d, in %s", item.Value, e.fence, op)
	case fence == e.fence:
		b.problem("two deliveries of %q with one fence: %s", item.Value, op)
	case newer && e.marks&popped == 0:
		b.checkFree(e, got, item.Value, op)
	case !newer && e.got < until-b.tolerance: // recorded late
		b.problem("held by two: %q, at %d ms, and by %s until %d ms", item.Value, e.got, op, until)
	}
	e.leases++
	if !newer {
		return
	}

	b.checkNext(e, op, item)
	b.checkDenied(e, item.Value)
	e.fence, e.deliveries = fence, uint16(item.Deliveries)
	e.until = e.backAfter(until)
	b.unmark(e, mayAck|mayNak|naked|snoozed|ackedAlone)
	if e.marks&dead == 0 {
		b.unmark(e, mayBury)
	}
	if e.marks&popped == 0 {
		e.got = got
	}
}

// extend records that a lease was extended.
func (b *Books) extend(e *entry, op *Operation, newest, alone bool) {
	over := millis(op.Call+op.Wait) - b.tolerance // at the earliest
	if op.Until > 0 {
		over = millis(op.Until)
		b.checkUntil(op, op.Value, op.Until)
	}
	if !newest || e.marks&naked != 0 {
		return
	}

	until := e.backAfter(over)
	if !alone {
		until = min(until, e.until)
	}

	e.until = until
	b.limits.extend(op, b.tolerance)
}

// checkUntil checks the end of a lease against its length.
func (b *Books) checkUntil(op *Operation, value string, until int64) {
	tolerance := int64(b.tolerance) * 1_000_000
	least, most := op.Call+op.Wait-tolerance, op.Return+op.Wait+tolerance
	if until < least || until > most {
		b.problem("%s: the lease of %q is over at %d ms, want %d to %d",
			op, value, millis(until), millis(least), millis(most))
	}
}

// checkNext checks that a lease counts on from the newest one, whatever came in between that is not
// known.
func (b *Books) checkNext(e *entry, op *Operation, item Item) {
	unknown, want := item.Fence-int64(e.fence)-1, int64(e.counted()+1)
	if e.marks&naked != 0 {
		unknown--
	}
	if unknown < 0 {
		b.problem("two deliveries of %q, one token: %s, after fence %d", item.Value, op, e.fence)
	} else if d := item.Deliveries; d < want-unknown || d > want+unknown {
		b.problem("delivery %d of %q in %s, want %d ± %d", d, item.Value, op, want, unknown)
	}
}

// beginUse is Begin of an operation with a token.
func (b *Books) beginUse(op *Operation) (i Intent) {
	e, unlock := b.entry(op.Value)
	defer unlock()
	b.limits.use(op)
	if e.uses++; e.uses > 1 {
		e.marks |= crowded
	}

	newest := int64(e.fence) == op.Fence
	used := newest && e.marks&(settled|naked) != 0
	i.lost = used || int64(e.fence) > op.Fence || e.ended(op) || e.hasLeft(op.ID)
	switch {
	case !newest || e.left(op.Queue, op.ID):
	case op.Kind == Extend: // A clock that is behind makes the lease shorter.
		e.until = min(e.until, e.backAfter(millis(op.Call+op.Wait)-b.tolerance))
	default:
		mark := mayNak
		switch {
		case op.Kind.Acks():
			mark = mayAck
		case op.Kind == Term:
			mark = mayBury
		}

		i.fresh = mark &^ e.marks
		if e.marks |= mark; i.fresh == mayAck {
			b.mayEnds.Add(1)
		}
	}

	return i
}

// use judges an operation with a token.
func (b *Books) use(op *Operation, i Intent) {
	e, unlock := b.entry(op.Value)
	defer unlock()
	left := e.left(op.Queue, op.ID)
	newest := int64(e.fence) == op.Fence && !left
	alone := e.marks&crowded == 0 // Otherwise nobody knows which use came first.
	if e.uses--; e.uses == 0 {
		e.marks &^= crowded
	}

	switch {
	case op.Open():
		if op.Kind == Nak {
			b.fences.Add(1)
		}
		if newest && op.Kind.Acks() && !i.together {
			e.marks |= ackedAlone
		}
		return
	case op.Outcome == Refused, op.Outcome == Stale:
		if newest && alone {
			b.unmark(e, i.fresh)
		}
		if newest && alone && op.Outcome == Stale {
			b.deny(e, op)
		}
		return
	case i.lost:
		b.problem("a lost token counts: %s", op)
	}

	b.keys.use(e, op)
	switch {
	case op.Kind == Term:
		b.bury(e, op)
	case left:
		b.useLate(op)
	case op.Kind.Acks():
		b.ack(e, op, newest)
	case op.Kind == Nak:
		b.nak(e, op, newest)
	default:
		b.extend(e, op, newest, alone)
	}
}

// ack judges an acknowledgement that counts.
func (b *Books) ack(e *entry, op *Operation, newest bool) {
	if !newest {
		b.problem("acknowledged with fence %d, delivered with %d: %q", op.Fence, e.fence, op.Value)
	}
	b.checkDenied(e, op.Value)
	b.settle(e, op, op.Value, acked)
}

// nak records that a negative acknowledgement counts.
func (b *Books) nak(e *entry, op *Operation, newest bool) {
	e.naks++
	if op.Snooze {
		e.snoozes++
	}
	if !newest {
		return
	}

	e.marks |= naked
	e.until = millis(op.Call + op.Delay)
	if op.Snooze {
		e.marks |= snoozed
	} else if e.isMortal() && e.deliveries >= MaxDeliver { // that was the last delivery
		e.marks |= buried
	}
}
