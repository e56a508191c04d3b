package books

import "strings"

// In queues whose names begin with d- or fifo-d-, items are given up after MaxDeliver deliveries,
// and have a backoff until then. The test that runs the operations must configure these queues so.
// Nobody is told when the last lease of an item runs out. So it may be in the dead-letter queue
// then, if its lease was over, and if clients know of its deliveries, or of operations without an
// answer that can have been the others.

// MaxDeliver is the max_deliver of such a queue.
const MaxDeliver = 3

// IsMortal reports whether the queue is such a queue, and not its dead-letter queue.
func IsMortal(queue string) bool {
	return strings.HasPrefix(strings.TrimPrefix(queue, "fifo-"), "d-") && !isDead(queue)
}

// isMortal reports whether the account is one in such a queue.
func (e *entry) isMortal() bool { return e.marks&mortal != 0 && e.life() == 0 }

// counted returns the deliveries after the newest operation that is known to count.
func (e *entry) counted() int {
	if e.marks&snoozed != 0 {
		return int(e.deliveries) - 1
	}
	return int(e.deliveries)
}

// diedAlone takes an item that is in the dead-letter queue at a time, or in the end if that is 0,
// though no operation is known that gave it up. It reports whether it can be there.
func (b *Books) diedAlone(e *entry, value string, at int32) bool {
	if !e.isMortal() {
		return false
	}
	if at > 0 && e.fence > 0 && e.marks&(naked|mayNak) == 0 && at < e.until-b.tolerance {
		b.problem("dead too early: %q, seen at %d ms, and leased until %d ms", value, at, e.until)
	}

	unknown := int64(max(0, MaxDeliver-e.counted()))
	b.graves.fences.Add(unknown)
	b.graves.early.Add(unknown)
	return true
}
