package books

// Removes and moves are about one item, and known like acknowledgements. Purges and redrives are
// about some number of items, and only the number is known.

// sweep records a purge or redrive. An error does not say that nothing was done.
func (b *Books) sweep(op *Operation) {
	switch {
	case op.Outcome == Done && op.Kind == Purge:
		b.sweeps.purged.Add(op.Len)
	case op.Outcome == Done && op.Len > int64(op.Batch):
		b.problem("redriven too many: %d by %s", op.Len, op)
	case op.Outcome == Done:
		b.sweeps.redriven.Add(op.Len)
	case op.Kind == Purge:
		b.sweeps.mayPurge.Store(true)
	default:
		b.sweeps.mayRedrive.Add(int64(op.Batch))
	}
}

// beginEdit is Begin of a remove or move.
func (b *Books) beginEdit(op *Operation) (i Intent) {
	e, unlock := b.entry(op.Value)
	defer unlock()
	b.limits.remove(op)
	byJob := e.first == hash(op.ID) // which finds the item at any place in its queue
	i.lost = e.marks&settled != 0 || e.ended(op) || !byJob && e.hasLeft(op.ID)
	if op.Kind == Move {
		if e.moves++; e.moves > 1 {
			e.marks |= shuffled
		}
	}
	return i
}

// edit judges a remove or move.
func (b *Books) edit(op *Operation, i Intent) {
	e, unlock := b.entry(op.Value)
	defer unlock()
	shuffles := e.marks&shuffled != 0
	if op.Kind == Move && !op.Open() {
		if e.moves--; e.moves == 0 {
			e.marks &^= shuffled
		}
	}

	switch {
	case op.Open() && op.Kind == Remove:
		e.marks |= mayRemove
		return
	case op.Outcome != Done:
		return
	case i.lost || e.left(op.Queue, op.ID) || e.isBuried():
		b.problem("gone, and found: %q, by %s", op.Value, op)
		return
	case op.Kind == Remove:
		b.keys.use(e, op)
		b.settle(e, op, op.Value, popped)
		e.got = max(e.got, millis(op.Return))
		return
	}

	e.renamed = max(e.renamed, millis(op.Return))
	switch {
	case shuffles:
		e.id = 0
	case e.id == 0 || e.id == hash(op.ID) || e.first == hash(op.ID):
		e.id = hash(op.Moved)
	} // else somebody has seen a newer one
}

// checkSweeps compares purges and redrives with the items that are gone, or back.
func (b *Books) checkSweeps(sum *Balance, swept, maySwept int64) {
	sum.Purged, sum.Redriven = b.sweeps.purged.Load(), b.graves.backs.Load()
	if more := swept - sum.Purged; more > 0 && !b.sweeps.mayPurge.Load() {
		if sum.Missing += more; sum.Missing > sum.Takes {
			b.problem("lost: %d items are gone, and %d were purged", swept, sum.Purged)
		}
	}
	if sum.Purged > maySwept {
		b.problem("%d items were purged, and only %d can be gone", sum.Purged, maySwept)
	}
	if most := b.sweeps.redriven.Load() + b.sweeps.mayRedrive.Load(); sum.Redriven > most {
		b.problem("%d dead letters are back, and only %d were redriven", sum.Redriven, most)
	}
}
