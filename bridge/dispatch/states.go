package dispatch

// The rules of a line: of the requests that wait for items of one queue, from either end, in the
// order in which they came.
//
// A look is a batch with pops of the first waiters. What its pops find is the line's attempt. While
// a look is in flight, no other batch pops from the queue, so nobody is overtaken. A push that
// meets its line gets the pops of the waiters into its own transaction.
//
// An event is whatever may make items available: a call of Wake, a due time, new settings, a lease
// that ends. Pushes only raise the budget.
//
// The budget is how many pops the next look should have, one for each item that may be there. With
// guess there may be more. A look takes the whole budget, and gives the unused part back unless it
// finds the queue empty. Then the budget it took is void; budget raised since is not. So no event
// is lost.
//
// Looks, events and waiters that join take numbers from one clock, lane.mu.clock, which starts
// at 1; 0 is none. A look takes its number when its batch is complete, so an event in the same
// batch comes before it.
//
//	event > look       what the look found out may be out of date
//	noLease > event    max_leased is in force: looks leave out leases that have waited
//	joined < emptied   a look has found the queue empty since the waiter joined
//	joined < noLease   a look has found that no lease is possible since then
//
// A waiter whose time is up ends if a look has found nothing for it since it joined, or if the last
// look failed. If not, it gets one more look. A pop that does not wait goes to the end of the line,
// and ends with the first look after its arrival that finds nothing.
//
// A cancelled waiter leaves at once, or with its look. To give an item back, cancel its request
// first: it would be first in line for the item that it has just lost.

// waiterState says where a waiter is. Only lane.moveWaiter changes it. A test checks that a waiter
// makes no other moves than these:
//
//	from        to          when
//	new         first       nobody waits, so the batch that is being made looks for it
//	new         acking      others wait, and its acknowledgements do not
//	new         parked      others wait
//	new         left        it was cancelled before it took anything
//	acking      parked      the acknowledgements are done, and it takes its place
//	acking      left        they failed, or it was cancelled meanwhile
//	first       parked      the batch found too little, or the waiter has no credits
//	first       left        it was answered, or cancelled meanwhile
//	parked      trying      a batch looks for it again
//	parked      late        its time is up, and nobody has looked since it came
//	parked      left        its time is up, it was cancelled, or there is nothing
//	trying      parked      the batch found too little
//	trying      left        it was answered, or cancelled meanwhile
//	late        lateTrying  a batch looks for it
//	late        left        nobody looked in time either, or it was cancelled
//	lateTrying  late        the batch had no room
//	lateTrying  left        it was answered, the batch failed, or it was cancelled meanwhile
type waiterState uint8

const (
	waiterNew        waiterState = iota // in no line and no batch
	waiterAcking                        // in no line; a batch runs its acknowledgements
	waiterFirst                         // in line, and in its first batch
	waiterParked                        // in line, and in no batch
	waiterTrying                        // in line, and again in a batch
	waiterLate                          // as waiterParked, but its time is up and no batch looked
	waiterLateTrying                    // as waiterLate, and in a batch
	waiterLeft                          // in no line any more
)

// inBatch reports whether operations of the waiter are in a batch.
func (s waiterState) inBatch() bool {
	return s == waiterAcking || s == waiterFirst || s == waiterTrying || s == waiterLateTrying
}

// hasParked reports whether the waiter is in line and has waited there.
func (s waiterState) hasParked() bool { return waiterParked <= s && s <= waiterLateTrying }

// isIdle reports whether the waiter is in line and in no batch.
func (s waiterState) isIdle() bool { return s == waiterParked || s == waiterLate }

// isLate reports whether the time of the waiter is up.
func (s waiterState) isLate() bool { return s == waiterLate || s == waiterLateTrying }

// lineState says whether a line is looked at. Only lane.moveLine changes it. A test checks that a
// line makes no other moves than these:
//
//	from      to        when
//	quiet     ready     it was woken, or has a budget
//	quiet     reserved  a request in the new batch fills the queue, or is first in line
//	quiet     gone      the last waiter has left
//	ready     reserved  the batch that is being made looks
//	ready     quiet     max_leased or credits allow no lease, or too much is unconfirmed
//	ready     gone      the last waiter has left
//	reserved  trying    the batch is made
//	trying    quiet     the batches have ended
type lineState uint8

const (
	lineQuiet    lineState = iota // it waits for an event
	lineReady                     // in lane.mu.ready: the next batch looks
	lineReserved                  // the batch that is being made has room for pops of it
	lineTrying                    // batches in flight have pops of it
	lineGone                      // nobody waits; a new line takes its place if somebody does
)
