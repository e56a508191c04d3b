package proof

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
)

// Books keeps accounts of very many items: which were pushed, who got them, what became of
// them. It judges each operation when it ends and then forgets it, so it knows nothing of
// order, and takes 28 bytes an item. What it finds:
//
//   - an item that is settled twice, or comes out after it was settled;
//   - an item that two clients have at once, or that comes back before its lease is over;
//   - two deliveries with one fence, and a token that counts after it was used up, or after
//     somebody else got the item;
//   - an item that comes back under another id than its own, so at another place;
//   - deliveries that are counted wrong;
//   - an item that nobody pushed, whose push was refused, or that is missing;
//   - half a batch of pushes, or one in the wrong order;
//   - an item in a dead-letter queue that nobody gave up, or that is in its own as well;
//   - a request that was told too early that there is nothing more to wait for.
//
// An item that nobody received is not missing unless something was broken: see [Gone].
//
// Operations of unknown outcome may or may not have happened, as in a [History]: each can
// explain one missing item, one unknown fence, and so on, in all queues together.
//
// The value of an item is its number, which New returns. All methods are safe for concurrent
// use. The operations of one token must come one after the other.
type Books struct {
	tolerance int32 // ms
	items     atomic.Int64
	ended     atomic.Int64 // items that are settled
	chunks    [maxChunks]atomic.Pointer[chunk]
	locks     [256]sync.Mutex // of the entries, by number

	mayEnds   atomic.Int64 // items that have the mark mayAck
	mayPushes atomic.Int64 // items whose push was refused or not answered

	takes  atomic.Int64 // items that pops of unknown outcome may have taken
	fences atomic.Int64 // fences that operations of unknown outcome may have used up
	again  atomic.Int64 // items that were stored again under another id
	gone   atomic.Int64 // items that nobody was there to receive
	graves afterlife

	mu struct {
		sync.Mutex
		batches  []batch // that may have been pushed
		problems []error
		more     int // that are not in problems
	}
}

const (
	chunkSize   = 1 << 16
	maxChunks   = 1 << 12
	maxProblems = 20
)

type chunk [chunkSize]entry

// entry is the account of one item. Times are in milliseconds of the history's clock.
type entry struct {
	until int32  // when the newest lease, or the delay after it, is over, at the earliest
	got   int32  // when a client had that lease, or the popped item
	id    uint32 // a hash of the item's id, 0 if nobody knows it
	// fence and deliveries are those of the newest lease; leases, naks and snoozes count
	// those that clients know of. A snooze is also a nak.
	fence, deliveries     uint16
	leases, naks, snoozes uint16
	marks                 marks
	moved                 int32 // when a client first had it from the dead-letter queue
}

// marks are what is known of an item. A new way to end needs a mark, and a place in settled.
type marks uint16

const (
	pushed marks = 1 << iota
	refused
	popped
	acked
	mayAck  // an acknowledgement of the newest lease was sent, or of one that nobody knows
	mayNak  // a negative one was sent
	naked   // it counts
	snoozed // and was a snooze
	mayBury // the newest lease was used to give the item up
	buried  // it counts
	dead    // the account is that of the dead-letter queue
)

const settled = popped | acked

// NewBooks returns empty books, for bridges whose clocks are wrong by skew nanoseconds at
// most.
func NewBooks(skew int64) *Books { return &Books{tolerance: millis(skew+clockSlack) + 2} }

func millis(nanoseconds int64) int32 { return int32(nanoseconds / 1_000_000) }

// New returns the number of an item that is about to be pushed.
func (b *Books) New() int64 {
	n := b.items.Add(1) - 1
	b.chunk(n)
	return n
}

// chunk returns the chunk of an item.
func (b *Books) chunk(n int64) *chunk {
	c := &b.chunks[n/chunkSize]
	if c.Load() == nil {
		c.CompareAndSwap(nil, &chunk{})
	}
	return c.Load()
}

// Waiting returns about how many items are in the queues, at least.
func (b *Books) Waiting() int64 {
	return b.items.Load() - b.ended.Load() - b.mayEnds.Load() - b.takes.Load() - b.mayPushes.Load()
}

// entry returns the account of an item, locked, nil if there is none.
func (b *Books) entry(value string) (e *entry, unlock func()) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n >= b.items.Load() {
		b.problem("invented: %q, which nobody pushed", value)
		return nil, nil
	}
	lock := &b.locks[n%int64(len(b.locks))]
	lock.Lock()
	return &b.chunk(n)[n%chunkSize], lock.Unlock
}

func (b *Books) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.problems) == maxProblems {
		b.mu.more++
		return
	}
	b.mu.problems = append(b.mu.problems, fmt.Errorf(format, args...))
}

// Problems returns everything that is wrong so far, joined; of very much only the first.
func (b *Books) Problems() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := errors.Join(b.mu.problems...)
	if b.mu.more > 0 {
		err = errors.Join(err, fmt.Errorf("and %d more problems", b.mu.more))
	}
	return err
}

// Intent is what is known of a token before it is used.
type Intent struct {
	lost  bool  // it must not count
	fresh marks // that nothing but this use justifies
}

// Begin is called before an operation is sent, End when its outcome is known.
func (b *Books) Begin(op *Operation) (i Intent) {
	if !op.Kind.settles() {
		return i
	}
	e, unlock := b.entry(op.Value)
	if e == nil {
		return i
	}
	defer unlock()
	newest := int64(e.fence) == op.Fence
	i.lost = int64(e.fence) > op.Fence || newest && e.marks&(acked|naked) != 0 || e.ended(op)
	if newest && op.Kind != Extend && !e.left(op.Queue) {
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

// End judges an operation.
func (b *Books) End(op *Operation, i Intent) {
	switch {
	case op.Kind == Push && op.Batch > 0:
		b.pushBatch(op)
	case op.Kind == Push:
		b.push(op)
	case op.Kind.settles():
		b.use(op, i)
	}
	if op.gaveUp() {
		b.problem("gave up early: %s after %d ms, and was to wait for %d", describe(op), millis(op.Return-op.Call), millis(op.Expires))
	}
	if op.Outcome == Gone {
		b.gone.Add(int64(op.asked()))
	}
	n := int64(op.Untold())
	if op.Kind.pops() {
		b.takes.Add(n)
	} else {
		b.fences.Add(n)
	}
	for _, item := range op.items() {
		e, unlock := b.entry(item.Value)
		if e == nil {
			continue
		}
		if e.marks&refused != 0 {
			b.problem("refused, but done: %s returned %q", op.Kind, item.Value)
		}
		if e.left(op.Queue) {
			b.outLate(e, op, item)
			unlock()
			continue
		}
		b.arrive(e, op.Queue, item.Value, millis(op.Return))
		b.identify(e, item.ID)
		switch {
		case op.Kind.pops():
			b.pop(e, op, item.Value)
		case op.Kind.leases():
			b.lease(e, op, item)
		}
		unlock()
	}
}

func (b *Books) push(op *Operation) {
	e, unlock := b.entry(op.Value)
	if e == nil {
		return
	}
	defer unlock()
	if op.Outcome != Done {
		b.mayPushes.Add(1)
	}
	switch {
	case op.Outcome == Done:
		e.marks |= pushed
		b.identify(e, op.ID)
	case op.Outcome == Refused && (e.leases > 0 || e.marks&settled != 0):
		b.problem("refused, but done: the push of %q", op.Value)
	case op.Outcome == Refused:
		e.marks |= refused
	}
}

// identify notes the id of an item. It changes only when a bridge cannot send the reply to a
// pop, and pushes the item again: that begins a new life.
func (b *Books) identify(e *entry, id string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	sum := h.Sum32() | 1
	if e.id != 0 && e.id != sum {
		b.again.Add(1)
		b.unmark(e, mayAck)
		*e = entry{marks: e.marks & (pushed | settled | lives), moved: e.moved}
	}
	e.id = sum
}

// settle records that an item is gone for good.
func (b *Books) settle(e *entry, op *Operation, value string, mark marks) {
	if e.marks&settled != 0 {
		b.problem("settled twice: %q, the second time by %s", value, describe(op))
	} else {
		b.ended.Add(1)
	}
	b.unmark(e, mayAck)
	e.marks |= mark
}

// unmark removes marks.
func (b *Books) unmark(e *entry, m marks) {
	if e.marks&m&mayAck != 0 {
		b.mayEnds.Add(-1)
	}
	e.marks &^= m
}

func (b *Books) pop(e *entry, op *Operation, value string) {
	if e.marks&lives&^mayBury == buried {
		b.problem("came back: %q, which was given up, in %s", value, describe(op))
	}
	b.checkFree(e, millis(op.Return), value, op)
	b.settle(e, op, value, popped)
	e.got = millis(op.Return)
}

// checkFree checks that the newest lease, or the delay after it, can have ended when a client
// got the item.
func (b *Books) checkFree(e *entry, got int32, value string, op *Operation) {
	switch {
	case e.fence == 0:
	case e.marks&naked != 0 && got < e.until-2*b.tolerance:
		b.problem("too early: %q, by %s at %d ms, and delayed until %d ms", value, describe(op), got, e.until)
	case e.marks&mayNak == 0 && got < e.until-b.tolerance:
		b.problem("held by two: %q, by %s at %d ms, and leased until %d ms", value, describe(op), got, e.until)
	}
}

func (b *Books) lease(e *entry, op *Operation, item Item) {
	fence, got := uint16(item.Fence), millis(op.Return)
	newer := fence > e.fence
	switch {
	case e.marks&popped != 0 && millis(op.Call) > e.got:
		b.problem("came back: %q, popped at %d ms, in %s", item.Value, e.got, describe(op))
	case newer && (e.marks&acked != 0 || e.marks&lives&^mayBury == buried):
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
	e.fence, e.deliveries, e.until = fence, uint16(item.Deliveries), millis(item.Until)
	b.unmark(e, mayAck|mayNak|naked|snoozed)
	if e.marks&dead == 0 {
		b.unmark(e, mayBury)
	}
	if e.marks&popped == 0 {
		e.got = got
	}
}

// use judges an operation with a token.
func (b *Books) use(op *Operation, i Intent) {
	e, unlock := b.entry(op.Value)
	if e == nil {
		return
	}
	defer unlock()
	left := e.left(op.Queue)
	newest := int64(e.fence) == op.Fence && !left
	switch {
	case op.open():
		if op.Kind == Nak {
			b.fences.Add(1)
		}
		return
	case op.Outcome == Refused, op.Outcome == Stale:
		if newest {
			b.unmark(e, i.fresh)
		}
		return
	case i.lost:
		b.problem("a lost token counts: %s", describe(op))
	}
	switch {
	case op.Kind == Term:
		b.bury(e, op)
	case left:
		b.useLate(op)
	case op.Kind.acks():
		if !newest {
			b.problem("acknowledged with fence %d, and delivered with fence %d: %q", op.Fence, e.fence, op.Value)
		}
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
		}
	case newest: // extended
		e.until = millis(op.Until)
	}
}
