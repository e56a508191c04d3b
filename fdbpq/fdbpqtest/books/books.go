package books

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
)

// Books keeps accounts of very many items: which were pushed, who got them, and what became of
// them. It judges each operation when it ends and then forgets it, so it knows nothing of order,
// and takes 48 bytes an item. An item is named by its place, as tokens and edits name it; the id of
// its job is checked beside. What it finds:
//
//   - an item that is settled twice, or comes out after it was settled;
//   - an item that two clients have at once, or that comes back before its lease is over, or the
//     backoff or retry delay after it;
//   - two deliveries with one fence, and a token that counts after it was used up, or after
//     somebody else got the item;
//   - an item that comes back at another place than its own, and a job whose id changes;
//   - deliveries that are counted wrong;
//   - an item that nobody pushed, whose push was refused, or that is missing;
//   - a lease that is said to be lost and is not, or the other way round;
//   - an acknowledgement of several leases that counts only for some of them;
//   - a delayed item that comes too early, one that has expired and is served, or that is gone
//     before;
//   - two items with one unique key, and a push that is told to be the duplicate of an item that
//     is gone;
//   - half a batch of pushes, or one in the wrong order;
//   - an item in a dead-letter queue that nobody gave up, or that is in its own as well, and one
//     that is back from there without a redrive;
//   - more items gone from a queue than were purged, or fewer;
//   - a request that was told too early that there is nothing more to wait for;
//   - more leases of a group, or deliveries in any time, than the queue allows;
//   - a job whose outcome is not what happened, or that is not where it must be: see outcomes.go;
//   - more bytes than a request asked for, and a request that is told that items are too large,
//     though it did not limit them.
//
// An item that nobody received is not missing unless something was broken: see [Gone].
//
// Operations of unknown outcome may or may not have happened, as in a history. Each can explain one
// missing item, one unknown fence, and so on, in all queues together.
//
// The value of an item is its number, which [Books.New] returns, unless the items are [Named]. All
// methods are safe for concurrent use.
type Books struct {
	tolerance int32            // ms
	names     map[string]int64 // the numbers of items that are Named
	named     sync.RWMutex
	items     atomic.Int64
	ended     atomic.Int64 // items that are settled
	chunks    [maxChunks]atomic.Pointer[[chunkSize]entry]
	locks     [256]sync.Mutex // of the entries, by number

	mayEnds   atomic.Int64 // items that have the mark mayAck, and those that are vanishing
	mayPushes atomic.Int64 // items whose push was refused or not answered

	takes        atomic.Int64 // items that pops of unknown outcome may have taken
	fences       atomic.Int64 // fences that operations of unknown outcome may have used up
	mortalFences atomic.Int64 // those of queues with max_deliver
	again        atomic.Int64 // items that were stored again under another id
	gone         atomic.Int64 // items that nobody was there to receive
	keys         *keys
	outcomes     outcomes
	limits       *limits

	// graves sums up the accounts that items had in earlier lives: see lives.go.
	graves struct {
		letters atomic.Int64 // items that clients saw in dead-letter queues
		backs   atomic.Int64 // and in the queues to which they were redriven
		fences  atomic.Int64 // of no known lease
		early   atomic.Int64 // deliveries that nobody knows, of items that died alone
	}

	// sweeps sums up purges and redrives.
	sweeps struct {
		purged     atomic.Int64 // items
		mayPurge   atomic.Bool  // a purge of unknown outcome was sent
		redriven   atomic.Int64 // items
		mayRedrive atomic.Int64 // more, by redrives of unknown outcome
	}

	mu struct {
		sync.Mutex
		batches  [][]string // values of batches that may have been pushed
		together [][]heldBy // acknowledgements of several leases whose outcome is unknown
		problems []error
		more     int // that are not in problems
	}
}

const (
	chunkSize   = 1 << 16
	maxChunks   = 1 << 12
	maxProblems = 20
)

// entry is the account of one item. Times are in milliseconds of the history's clock.
type entry struct {
	// until is the earliest time at which the newest lease is over, or the delay after it or after
	// the push.
	until int32
	// got is when a client had that lease, or the popped or removed item.
	got int32
	// arrived is when a client first saw the item in the queue that it is in now, if it was in
	// another before.
	arrived int32
	renamed int32  // when it got its place by a move
	expires span   // when it expires
	id      uint32 // a hash of the item's place, 0 if nobody knows it
	first   uint32 // a hash of the id of its job, which was its place at first; 0 the same
	marks   marks

	// fence and deliveries come from the newest lease. leases, naks and snoozes are how many
	// clients know of. A snooze is also a nak.
	fence, deliveries     uint16
	leases, naks, snoozes uint16

	// moves and uses are how many may have happened, or are under way, without an answer.
	moves, uses uint8
}

// span is a time that is not known exactly; from is 0 if it never is.
type span struct{ from, to int32 }

// marks are known facts about an item. A new way to end needs a mark, and a place in settled.
type marks uint32

const (
	pushed marks = 1 << iota
	refused
	popped // or removed
	acked
	mayAck    // an acknowledgement of the newest lease was sent, or of one that nobody knows
	mayNak    // a negative one was sent
	naked     // it counts
	snoozed   // and was a snooze
	mayBury   // the newest lease was used to give the item up
	buried    // it counts
	dead      // the account is that of the dead-letter queue
	back      // it is that of the queue that it was redriven to
	mayRemove // a remove of unknown outcome was sent
	expiring
	purgeable  // it is in a queue that is purged
	keyed      // it has a unique key
	mortal     // it was pushed to a queue with max_deliver
	retried    // it was pushed to a queue with a backoff
	ackedAlone // mayAck, and not only together with others
	denied     // see deny
	crowded    // several uses of tokens are under way
	shuffled   // several moves are, so nobody knows which is the last
)

const (
	settled   = popped | acked
	vanishing = expiring | purgeable // it may be gone without a trace
)

// New returns empty books, for bridges whose clocks are wrong by skew nanoseconds at most.
func New(skew int64) *Books {
	return &Books{
		tolerance: millis(skew+ClockSlack) + 2,
		outcomes: outcomes{
			jobs: map[string]*job{}, values: map[string]string{}, leasesFrom: map[string]int64{},
		},
		keys: &keys{
			items: map[string]*uniqueItem{}, takes: map[string]int64{}, mayHold: map[string]bool{},
		},
		limits: &limits{
			queues: map[string]queueLimits{}, consumers: map[line]int{},
			deliveries: map[line][]span{}, leases: map[line][]*leaseSpan{},
			held: map[heldLease][]*leaseSpan{}, removes: map[string]int32{},
		},
	}
}

// Named returns books in which values name the items, whatever they are.
func Named(skew int64) *Books {
	b := New(skew)
	b.names = map[string]int64{}
	return b
}

// ClockSlack is how exact times are if clocks do not differ: leases end at a full
// microsecond, and the machine may adjust its clock.
const ClockSlack = 10_000_000

func millis(nanoseconds int64) int32 { return int32(nanoseconds / 1_000_000) }

// New returns the number of an item that is about to be pushed.
func (b *Books) New() int64 {
	n := b.items.Add(1) - 1
	b.chunk(n)
	return n
}

// chunk returns the chunk of an item.
func (b *Books) chunk(n int64) *[chunkSize]entry {
	c := &b.chunks[n/chunkSize]
	if c.Load() == nil {
		c.CompareAndSwap(nil, &[chunkSize]entry{})
	}
	return c.Load()
}

// Waiting returns about how many items are in the queues, at least.
func (b *Books) Waiting() int64 {
	return b.items.Load() - b.ended.Load() - b.mayEnds.Load() - b.takes.Load() - b.mayPushes.Load()
}

// name gives a value a number, if values are names.
func (b *Books) name(value string) {
	if b.names == nil {
		return
	}
	b.named.Lock()
	defer b.named.Unlock()
	if _, known := b.names[value]; !known {
		b.names[value] = b.New()
	}
}

// number returns the number of an item, -1 if there is none.
func (b *Books) number(value string) int64 {
	if b.names == nil {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n < b.items.Load() {
			return n
		}
		return -1
	}

	b.named.RLock()
	defer b.named.RUnlock()
	if n, known := b.names[value]; known {
		return n
	}

	return -1
}

// at returns the account of an item by its number.
func (b *Books) at(n int64) *entry { return &b.chunk(n)[n%chunkSize] }

// entry returns the account of an item, locked. An item that nobody pushed gets an empty account,
// which nobody looks at again.
func (b *Books) entry(value string) (e *entry, unlock func()) {
	n := b.number(value)
	if n < 0 {
		b.problem("invented: %q, which nobody pushed", value)
		return &entry{}, func() {}
	}
	lock := &b.locks[n%int64(len(b.locks))]
	lock.Lock()
	return b.at(n), lock.Unlock
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

// Problems returns everything that is wrong so far, joined: the first 20 problems, and how many
// more there are.
func (b *Books) Problems() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := errors.Join(b.mu.problems...)
	if b.mu.more > 0 {
		err = errors.Join(err, fmt.Errorf("and %d more problems", b.mu.more))
	}
	return err
}

// Intent is the account of an item before an operation on it is sent.
type Intent struct {
	lost  bool     // it must not count
	fresh marks    // that nothing but this use justifies
	parts []Intent // of an acknowledgement of several leases

	together bool // it is one of these
}

// Begin is called before an operation is sent, but after its Call was set. End is called when its
// outcome is known.
func (b *Books) Begin(op *Operation) (i Intent) {
	switch {
	case IsTraced(op.Queue):
		return i
	case op.Kind == Push:
		b.announce(op)
		return i
	case op.Kind == Remove || op.Kind == Move:
		return b.beginEdit(op)
	case !op.Kind.Settles():
		return i
	case len(op.Also) > 0:
		for _, part := range op.Parts() {
			use := b.beginUse(part)
			use.together = true
			i.parts = append(i.parts, use)
		}
		return i
	}

	return b.beginUse(op)
}

// End judges an operation.
func (b *Books) End(op *Operation, i Intent) {
	switch {
	case IsTraced(op.Queue):
		b.endTraced(op)
	case op.Kind == Push && op.Batch > 0:
		b.pushBatch(op)
	case op.Kind == Push:
		b.push(op)
	case op.Kind == Remove || op.Kind == Move:
		b.edit(op, i)
	case op.Kind == Purge || op.Kind == Redrive:
		b.sweep(op)
	case len(op.Also) > 0:
		b.useParts(op, i)
	case op.Kind.Settles():
		b.use(op, i)
	}

	if op.gaveUp() {
		waited := millis(op.Return - op.Call)
		b.problem("gave up early: %s after %d ms of %d ms", op, waited, millis(op.Expires))
	}
	if wrong := op.wrongSize(); wrong != "" {
		b.problem("%s: %s", wrong, op)
	}
	if IsTraced(op.Queue) {
		return
	}
	if op.Outcome == Gone {
		b.gone.Add(int64(op.Asked()))
	}

	n := int64(op.Untold())
	if op.Kind.Pops() {
		b.takes.Add(n)
	} else {
		b.fences.Add(int64(op.untoldFences()))
		if IsMortal(op.Queue) {
			b.mortalFences.Add(n + int64(op.returned()))
		}
	}

	b.keys.take(op, n)
	for _, item := range op.Got() {
		b.out(op, item)
	}
}

// out records an item that was popped or leased.
func (b *Books) out(op *Operation, item Item) {
	e, unlock := b.entry(item.Value)
	defer unlock()
	if e.marks&refused != 0 {
		b.problem("refused, but done: %s returned %q", op.Kind, item.Value)
	}
	if e.left(op.Queue, item.ID) {
		b.outLate(e, op, item)
		return
	}

	b.arrive(e, op.Queue, item.ID, item.Value, millis(op.Return))
	b.identify(e, item.ID, millis(op.Call))
	b.checkJob(e, item)
	if e.marks&expiring != 0 && e.expires.to > 0 && millis(op.Call) > e.expires.to+2*b.tolerance {
		b.problem("expired, and served: %q, at %d ms, by %s", item.Value, e.expires.to, op)
	}
	if e.life() > 0 && item.Unique != "" {
		b.problem("given up, and has a unique key: %q, %q, by %s", item.Value, item.Unique, op)
	}

	b.keys.out(e, op, item)
	b.limits.out(op, item, b.tolerance)
	switch {
	case op.Kind.Pops():
		b.pop(e, op, item.Value)
	case op.Kind.Leases():
		b.lease(e, op, item)
	}
}

// settle records that an item is gone for good.
func (b *Books) settle(e *entry, op *Operation, value string, mark marks) {
	if e.marks&settled != 0 {
		b.problem("settled twice: %q, the second time by %s", value, op)
	} else {
		b.ended.Add(1)
	}
	b.unmark(e, mayAck|vanishing)
	e.marks |= mark
}

// unmark removes marks.
func (b *Books) unmark(e *entry, m marks) {
	if e.marks&m&mayAck != 0 {
		b.mayEnds.Add(-1)
	}
	if e.marks&m&vanishing != 0 {
		b.mayEnds.Add(-1)
	}
	e.marks &^= m
}
