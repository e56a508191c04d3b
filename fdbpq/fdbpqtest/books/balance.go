package books

import "math"

// Balance is what Close has added up.
type Balance struct {
	Items       int64
	Missing     int64 // of these
	Halves      int64 // missing, and acknowledged together with others that are not
	Takes       int64 // that unanswered pops may have taken
	Again       int64 // stored again under another id
	Redelivered int64 // delivered more than once
	Fences      int64 // of no known lease
	MayFences   int64 // that unanswered operations may have used

	Buried, Redriven int64 // dead letters
	Purged, Vanished int64 // vanished are those that have expired or were purged

	Keys, Duplicates int64 // items with unique keys, and pushes that were told of another one
	Overlaps         int64 // two items at once with one key, or one without its key
	Gone             int64 // sent to nobody while nothing was broken
	AtLimit, AtRate  int64 // groups that came to a limit, and deliveries at a rate

	Traced, Finished int64 // jobs in traced queues, and how many are done in the end
}

// Close adds everything up, after all that was left has been entered, which was done at a time in
// milliseconds: until then items may have expired. It returns everything that is wrong.
func (b *Books) Close(at int64) (Balance, error) {
	b.completeBatches()
	halves := b.undoTogether()
	sum := Balance{
		Items: b.items.Load(), Takes: b.takes.Load(), Again: b.again.Load(),
		Fences: b.graves.fences.Load(), MayFences: b.fences.Load(),
		Buried: b.graves.letters.Load(), Gone: b.gone.Load(), Halves: halves,
		Keys: int64(len(b.keys.items)), Duplicates: int64(len(b.keys.duplicates)),
	}

	var swept, maySwept int64 // from queues that are purged
	for n := range sum.Items {
		e := b.at(n)
		if b.isMissing(e) {
			switch may := e.mayVanish(); {
			case may&expiring != 0 && e.expires.from-2*b.tolerance <= int32(at):
				sum.Vanished++
			case may&purgeable != 0:
				sum.Vanished++
				swept++
			default:
				if sum.Missing++; sum.Missing > sum.Takes {
					b.problem("lost: %d, pushed, and not there any more: %+v", n, *e)
				}
			}
		}
		if e.marks&purgeable != 0 && e.marks&settled == 0 {
			maySwept++
		}
		if e.fence > 0 {
			sum.Fences += b.checkCounts(n, e)
		}
		if e.fence > 1 {
			sum.Redelivered++
		}
	}

	b.checkSweeps(&sum, swept, maySwept)
	if early, may := b.graves.early.Load(), b.mortalFences.Load(); early > may {
		b.problem("died too early: %d unknown deliveries of dead letters, %d can be", early, may)
	}
	b.checkLimits(&sum)
	if sum.Again > sum.Takes {
		b.problem("stored again under another id: %d items by %d pops", sum.Again, sum.Takes)
	}
	if sum.Fences > sum.MayFences {
		b.problem("%d fences are of no known lease, %d can be", sum.Fences, sum.MayFences)
	}

	var takes int64
	if sum.Overlaps, takes = b.keys.check(b); sum.Overlaps > takes {
		b.problem("two items with one unique key, or one without its key, %d times, "+
			"and only %d pops can have freed a key for a while", sum.Overlaps, takes)
	}

	sum.Finished, sum.Traced = b.closeOutcomes()
	return sum, b.Problems()
}

// mayVanish returns in which ways the item may be gone. Items that were given up are in a
// dead-letter queue.
func (e *entry) mayVanish() marks {
	if e.isBuried() {
		return 0
	}
	return e.marks & vanishing
}

// isMissing reports whether the item was pushed, and nothing that is known of it says where it is.
func (b *Books) isMissing(e *entry) bool {
	return e.marks&pushed != 0 && e.marks&(settled|mayAck|mayRemove) == 0
}

// checkCounts compares fence and deliveries of the newest lease with the operations that
// clients know of. It returns how many fences are of none of them.
func (b *Books) checkCounts(n int64, e *entry) (unknown int64) {
	naks, snoozes := int64(e.naks), int64(e.snoozes)
	if e.marks&naked != 0 {
		naks--
	}
	if e.marks&snoozed != 0 {
		snoozes--
	}

	unknown = int64(e.fence) - int64(e.leases) - naks
	counted := int64(e.leases) - snoozes
	if d := int64(e.deliveries); unknown < 0 || d < counted-unknown || d > counted+unknown {
		b.problem("item %d: fence %d and %d deliveries, after %d leases, %d naks and %d snoozes",
			n, e.fence, d, e.leases, naks, snoozes)
	}

	return max(unknown, 0)
}

// Left records an item that was found in the store after all had ended.
func (b *Books) Left(queue, value, id string) {
	if IsTraced(queue) {
		state := StateReady
		if isDead(queue) {
			state = StateDead
		}
		b.leftTraced(value, "", state, "")
		return
	}
	e, unlock := b.entry(value)
	defer unlock()
	if e.left(queue, id) || !isDead(queue) && e.lifeOf(queue, id) == 0 && e.marks&buried != 0 {
		b.problem("given up and left: %q, in %s", value, queue)
		return
	}

	b.arrive(e, queue, id, value, 0)
	b.identify(e, id, math.MaxInt32)
	switch {
	case e.marks&settled != 0:
		b.problem("settled and left: %q", value)
	case e.marks&refused != 0:
		b.problem("refused, but left: %q", value)
	}

	b.checkDenied(e, value)
	if e.marks&settled == 0 {
		b.ended.Add(1)
	}

	b.keys.left(e, value)
	b.unmark(e, vanishing)
	e.marks |= popped
}
