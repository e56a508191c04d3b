package proof

import (
	"strconv"
	"strings"
	"sync/atomic"
)

// An item that is given up (Term) moves to the queue with "-dead" after its name, under another
// id. Its account begins anew there, with the mark dead. Operations on the queue that it was in
// may be entered after that.

// lives are the marks that say in which of the two queues an item may be.
const lives = mayBury | buried | dead

// afterlife sums up the accounts that items had before they were given up.
type afterlife struct {
	letters atomic.Int64 // items that clients saw in dead-letter queues
	fences  atomic.Int64 // of no known lease
}

func isDead(queue string) bool { return strings.HasSuffix(queue, "-dead") }

// left reports whether the item was seen in its dead-letter queue, and the given one is the
// queue that it was in before.
func (e *entry) left(queue string) bool { return e.marks&dead != 0 && !isDead(queue) }

// ended reports whether the item of a token was given up.
func (e *entry) ended(op *Operation) bool {
	return e.left(op.Queue) || e.marks&lives&^mayBury == buried
}

// bury records that an item was given up.
func (b *Books) bury(e *entry, op *Operation) {
	switch left := e.left(op.Queue); {
	case !left && e.marks&settled != 0:
		b.problem("settled twice: %q, the second time by %s", op.Value, describe(op))
	case !left && int64(e.fence) != op.Fence:
		b.problem("given up with fence %d, and delivered with fence %d: %q", op.Fence, e.fence, op.Value)
	}
	e.marks |= buried
}

// arrive begins a new account for an item that is seen in its dead-letter queue for the first
// time.
func (b *Books) arrive(e *entry, queue, value string, at int32) {
	if !isDead(queue) || e.marks&dead != 0 {
		return
	}
	if e.marks&lives == 0 {
		b.problem("given up by nobody: %q, in %s", value, queue)
	}
	b.graves.letters.Add(1)
	if e.fence > 0 {
		n, _ := strconv.ParseInt(value, 10, 64) // it has an account
		b.graves.fences.Add(b.checkCounts(n, e))
	}
	b.unmark(e, mayAck)
	*e = entry{marks: e.marks&(pushed|refused|settled|lives) | dead, moved: at}
}

// outLate records an item that came out of the queue that it was in before, after it was seen
// in the dead-letter queue.
func (b *Books) outLate(e *entry, op *Operation, item Item) {
	if op.Kind.pops() || millis(op.Call) > e.moved {
		b.problem("in two queues: %q, in the dead-letter queue at %d ms, and in %s", item.Value, e.moved, describe(op))
	}
	b.graves.fences.Add(-1) // its fence was one of no known lease
}

// useLate records that a token counted, after the item was seen in the dead-letter queue.
func (b *Books) useLate(op *Operation) {
	switch {
	case op.Kind.acks():
		b.problem("settled twice: %q, in the dead-letter queue, and by %s", op.Value, describe(op))
	case op.Kind == Nak:
		b.graves.fences.Add(-1)
	}
}
