package proof

func (b *Books) pop(e *entry, op *Operation, value string) {
	if e.isBuried() {
		b.problem("came back: %q, which was given up, in %s", value, describe(op))
	}
	b.checkFree(e, millis(op.Return), value, op)
	b.checkDenied(e, value)
	b.settle(e, op, value, popped)
	e.got = millis(op.Return)
}

// checkFree checks that the newest lease, or the delay after it, can have ended when a client
// got the item.
func (b *Books) checkFree(e *entry, got int32, value string, op *Operation) {
	switch {
	case e.fence == 0:
		if got < e.until-2*b.tolerance {
			b.problem("too early: %q, by %s at %d ms, and pushed with a delay until %d ms", value, describe(op), got, e.until)
		}
	case e.marks&naked != 0 && got < e.until-2*b.tolerance:
		b.problem("too early: %q, by %s at %d ms, and delayed until %d ms", value, describe(op), got, e.until)
	case e.marks&mayNak == 0 && got < e.until-b.tolerance:
		b.problem("held by two: %q, by %s at %d ms, and leased until %d ms", value, describe(op), got, e.until)
	}
}

func (b *Books) lease(e *entry, op *Operation, item Item) {
	fence, got := uint16(item.Fence), millis(op.Return)
	b.checkMortal(e, op, item)
	newer := fence > e.fence
	switch {
	case e.marks&popped != 0 && millis(op.Call) > e.got:
		b.problem("came back: %q, popped at %d ms, in %s", item.Value, e.got, describe(op))
	case newer && (e.marks&acked != 0 || e.isBuried()):
		b.problem("came back: %q, settled with fence %d, in %s", item.Value, e.fence, describe(op))
	case fence == e.fence:
		b.problem("two deliveries of %q with one fence: %s", item.Value, describe(op))
	case newer && e.marks&popped == 0:
		b.checkFree(e, got, item.Value, op)
	case !newer && e.got < millis(item.Until)-b.tolerance: // recorded late
		b.problem("held by two: %q, at %d ms, and by %s until %d ms", item.Value, e.got, describe(op), millis(item.Until))
	}
	e.leases++
	if !newer {
		return
	}
	b.checkDenied(e, item.Value)
	e.fence, e.deliveries = fence, uint16(item.Deliveries)
	e.until = e.backAfter(millis(item.Until))
	b.unmark(e, mayAck|mayNak|naked|snoozed|ackedAlone)
	if e.marks&dead == 0 {
		b.unmark(e, mayBury)
	}
	if e.marks&popped == 0 {
		e.got = got
	}
}

// beginUse is Begin of an operation with a token.
func (b *Books) beginUse(op *Operation) (i Intent) {
	e, unlock := b.entry(op.Value)
	if e == nil {
		return i
	}
	defer unlock()
	b.limits.use(op)
	newest := int64(e.fence) == op.Fence
	i.lost = int64(e.fence) > op.Fence || newest && e.marks&(settled|naked) != 0 || e.ended(op) || e.hasLeft(op.ID)
	if newest && op.Kind != Extend && !e.left(op.Queue, op.ID) {
		mark := mayNak
		switch {
		case op.Kind.acks():
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
	if e == nil {
		return
	}
	defer unlock()
	left := e.left(op.Queue, op.ID)
	newest := int64(e.fence) == op.Fence && !left
	switch {
	case op.open():
		if op.Kind == Nak {
			b.fences.Add(1)
		}
		if newest && op.Kind.acks() && !i.together {
			e.marks |= ackedAlone
		}
		return
	case op.Outcome == Refused, op.Outcome == Stale:
		if newest {
			b.unmark(e, i.fresh)
		}
		if newest && op.Outcome == Stale {
			b.deny(e, op)
		}
		return
	case i.lost:
		b.problem("a lost token counts: %s", describe(op))
	}
	b.keys.use(e, op)
	switch {
	case op.Kind == Term:
		b.bury(e, op)
	case left:
		b.useLate(op)
	case op.Kind.acks():
		if !newest {
			b.problem("acknowledged with fence %d, and delivered with fence %d: %q", op.Fence, e.fence, op.Value)
		}
		b.checkDenied(e, op.Value)
		b.settle(e, op, op.Value, acked)
	case op.Kind == Nak:
		e.naks++
		if op.Snooze {
			e.snoozes++
		}
		if newest {
			e.marks |= naked
			e.until = millis(op.Call + op.Delay)
			if op.Snooze {
				e.marks |= snoozed
			}
			b.diedOfNak(e, op)
		}
	case newest: // extended
		e.until = e.backAfter(b.extendedTo(op))
		b.limits.extend(op, b.tolerance)
	}
}
