package books

import (
	"hash/fnv"
	"strings"
)

// An item that is given up (Term) moves to the queue with "-dead" after its name, to another place.
// Its account begins anew there, with the mark dead. A redrive sends it back to its queue, again to
// another place, where its account begins anew with the mark back. It is not given up once more
// then. So an item has up to three lives, 0 to 2. Operations of an earlier life may be entered
// after operations of a later one. The job keeps its id through all of them.
//
// In queues to which items are redriven none are moved or removed, so that a place says which life
// it is of, and none are purged, so that an item that was redriven must be there.

// lives are the marks that say in which of the queues an item may be.
const lives = mayBury | buried | dead | back

func isDead(queue string) bool { return strings.HasSuffix(queue, "-dead") }

// life returns the life that the account is about.
func (e *entry) life() int {
	switch {
	case e.marks&back != 0:
		return 2
	case e.marks&dead != 0:
		return 1
	}
	return 0
}

// lifeOf returns the life in which the item has that place in that queue.
func (e *entry) lifeOf(queue, id string) int {
	switch {
	case isDead(queue):
		return 1
	case e.marks&lives == 0 || e.first == hash(id) || e.renamed > 0 || e.moves > 0:
		return 0
	}
	return 2
}

// left reports whether the item was seen in a later life than the given one.
func (e *entry) left(queue, id string) bool { return e.lifeOf(queue, id) < e.life() }

// isBuried reports whether the item was given up, and nobody has seen it since.
func (e *entry) isBuried() bool { return e.marks&lives&^mayBury == buried }

// ended reports whether the item of a token was given up.
func (e *entry) ended(op *Operation) bool { return e.left(op.Queue, op.ID) || e.isBuried() }

// bury records that an item was given up.
func (b *Books) bury(e *entry, op *Operation) {
	switch left := e.left(op.Queue, op.ID); {
	case !left && e.marks&settled != 0:
		b.problem("settled twice: %q, the second time by %s", op.Value, op)
	case !left && int64(e.fence) != op.Fence:
		b.problem("given up with fence %d, delivered with %d: %q", op.Fence, e.fence, op.Value)
	}
	e.marks |= buried
}

// arrive begins a new account for an item that is seen in a new life for the first time.
func (b *Books) arrive(e *entry, queue, id, value string, at int32) {
	life := e.lifeOf(queue, id)
	if life <= e.life() {
		return
	}

	mark := dead
	switch {
	case e.marks&lives == 0 && !b.diedAlone(e, value, at):
		b.problem("given up by nobody: %q, in %s", value, queue)
		fallthrough
	case life == 1:
		b.graves.letters.Add(1)
	default:
		b.graves.backs.Add(1)
		mark |= back
	}

	if e.fence > 0 {
		b.graves.fences.Add(b.checkCounts(b.number(value), e))
	}

	b.unmark(e, mayAck|vanishing)
	*e = entry{
		marks:   e.marks&(pushed|refused|settled|lives|keyed|retried|crowded|shuffled) | mark,
		arrived: at, first: e.first, renamed: e.renamed, moves: e.moves, uses: e.uses,
	}
}

// outLate records an item that came out in an earlier life, after it was seen in a later one.
func (b *Books) outLate(e *entry, op *Operation, item Item) {
	if op.Kind.Pops() || millis(op.Call) > e.arrived {
		b.problem("in two queues: %q, in another at %d ms, and in %s", item.Value, e.arrived, op)
	}
	b.graves.fences.Add(-1) // its fence was one of no known lease
}

// useLate records that a token counted, after the item was seen in a later life.
func (b *Books) useLate(op *Operation) {
	switch {
	case op.Kind.Acks():
		b.problem("settled twice: %q, in another queue, and by %s", op.Value, op)
	case op.Kind == Nak:
		b.graves.fences.Add(-1)
	}
}

// IsBack reports whether the item was redriven, so that it is not to be given up again.
func (b *Books) IsBack(value string) bool {
	e, unlock := b.entry(value)
	defer unlock()
	return e.marks&back != 0
}

// hasLeft reports whether a move has given the item another place.
func (e *entry) hasLeft(place string) bool {
	return e.renamed > 0 && e.moves == 0 && e.id != 0 && e.id != hash(place)
}

// checkJob checks that the id of the job of an item is what it was, if the client was told.
func (b *Books) checkJob(e *entry, item Item) {
	switch {
	case item.Job == "":
	case e.first == 0:
		e.first = hash(item.Job)
	case e.first != hash(item.Job):
		b.problem("a job has two ids: %q, the other is %s", item.Value, item.Job)
	}
}

// identify notes the place of an item. Only a move changes it, apart from a bridge that cannot send
// the reply to a pop, and pushes the item again: that begins a new life. Nobody is told the place
// of a successor, which is "" then.
func (b *Books) identify(e *entry, place string, call int32) {
	sum := hash(place)
	switch {
	case place == "":
		return
	case e.id == sum || e.moves > 0:
	case e.renamed > 0 && call <= e.renamed: // recorded late
		return
	case e.id == 0:
	default:
		b.again.Add(1)
		b.unmark(e, mayAck)
		const kept = pushed | settled | lives | mayRemove | vanishing | keyed | mortal | retried |
			crowded
		*e = entry{
			marks: e.marks & kept, arrived: e.arrived, first: e.first,
			expires: e.expires, uses: e.uses,
		}
	}

	e.id = sum
	if e.life() == 0 && e.first == 0 && e.renamed == 0 && e.moves == 0 {
		e.first = sum
	}
}

// hash returns a hash of an id or place, which is not 0.
func hash(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() | 1
}
