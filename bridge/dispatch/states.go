package dispatch

// waiterState says where a waiter is. Only lane.moveWaiter changes it, by the moves in waiterMoves.
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

// move is a row of waiterMoves or lineMoves.
type move[State any] struct {
	from, to State
	when     string
}

// waiterMoves lists all moves of waiters. Tests check that there are no others.
var waiterMoves = [...]move[waiterState]{
	{waiterNew, waiterFirst, "nobody waits, so the batch that is being made looks for it"},
	{waiterNew, waiterAcking, "others wait, and its acknowledgements do not"},
	{waiterNew, waiterParked, "others wait, or the batch that is being made has no room"},
	{waiterNew, waiterLeft, "it was cancelled before it took anything"},
	{waiterAcking, waiterParked, "the acknowledgements are done, and it takes its place"},
	{waiterAcking, waiterLeft, "they failed, or it was cancelled meanwhile"},
	{waiterFirst, waiterParked, "the batch found too little, or the waiter has no credits"},
	{waiterFirst, waiterLeft, "it was answered, or cancelled meanwhile"},
	{waiterParked, waiterTrying, "a batch looks for it again"},
	{waiterParked, waiterLate, "its time is up, and nobody has looked since it came"},
	{waiterParked, waiterLeft, "its time is up, it was cancelled, or there is nothing"},
	{waiterTrying, waiterParked, "the batch found too little"},
	{waiterTrying, waiterLeft, "it was answered, or cancelled meanwhile"},
	{waiterLate, waiterLateTrying, "a batch looks for it"},
	{waiterLate, waiterLeft, "nobody looked in time either, or it was cancelled"},
	{waiterLateTrying, waiterLate, "the batch failed, or had no room"},
	{waiterLateTrying, waiterLeft, "it was answered, or cancelled meanwhile"},
}

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

// lineState says whether a line is looked at. Only lane.moveLine changes it, by the moves in
// lineMoves.
type lineState uint8

const (
	lineQuiet    lineState = iota // it waits for an event
	lineReady                     // in lane.mu.ready: the next batch looks
	lineReserved                  // the batch that is being made has room for pops of it
	lineTrying                    // batches in flight have pops of it
	lineStale                     // as lineTrying, but something has changed since they were made
	lineGone                      // nobody waits; a new line takes its place if somebody does
)

// lineMoves lists all moves of lines. Tests check that there are no others.
var lineMoves = [...]move[lineState]{
	{lineQuiet, lineReady, "it was woken, or has a budget"},
	{lineQuiet, lineReserved, "a request in the new batch fills the queue, or is first in line"},
	{lineQuiet, lineGone, "the last waiter has left"},
	{lineReady, lineReserved, "the batch that is being made looks"},
	{lineReady, lineQuiet, "max_leased or credits allow no lease, or too much of its queue is kept"},
	{lineReady, lineGone, "the last waiter has left"},
	{lineReserved, lineTrying, "the batch is made"},
	{lineTrying, lineStale, "the line was woken, or a lease has ended"},
	{lineTrying, lineQuiet, "the batches have ended"},
	{lineStale, lineQuiet, "the batches have ended"},
}

// leaseLimit is what a line knows of the max_leased of its queue.
type leaseLimit uint8

const (
	limitUnmet   leaseLimit = iota // no lease has met it
	limitMet                       // one has, so the end of another may serve the line
	limitInForce                   // one has, nothing has changed, and batches leave out the leases
)
