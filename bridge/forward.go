package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Pops that one bridge forwards to another are numbered, one after the other.
// NATS delivers what one connection sends in the order sent, or loses it, so a
// number that is missing will not come any more. The receiver keeps account of
// the numbers in a ledger and reports it; the sender keeps each pop until a
// report says that it was answered or lost. Reports tell the whole state, so
// one that gets lost does no harm.

// report is what a bridge says of the pops that another one forwarded to it. All
// numbers from floor to high that are neither lost nor pending were answered.
type report struct {
	floor   uint64   // nothing is known of lower numbers
	high    uint64   // the highest number that came
	lost    []span   // did not come and will not be run; in order
	pending []uint64 // came and are not answered; in order
	final   bool     // the bridge answers nothing after this
}

// span is the numbers from first to last.
type span struct{ first, last uint64 }

// origin says which pop of which bridge a request is. The zero value is a
// request that NATS itself gave to this bridge.
type origin struct {
	ledger *ledger
	number uint64
}

// replier returns who answers a request of the endpoint that comes from there.
func (o origin) replier(e *endpoint) dispatch.Replier {
	if o.ledger == nil {
		return e.replier
	}
	f := o.ledger.repliers[e]
	if f == nil {
		f = &forwardedReplier{e.replier, o.ledger}
		o.ledger.repliers[e] = f
	}
	return f
}

// forwardedReplier answers the clients of pops that another bridge forwarded, and notes
// in the ledger that it did. A report that says so is published later on the same
// connection, so the reply comes before it.
type forwardedReplier struct {
	*clientReplier
	ledger *ledger
}

// Answer implements dispatch.Replier.
func (f *forwardedReplier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	f.clientReplier.Answer(r, ops, results)
	f.ledger.answered(r.Number)
}

// Fail implements dispatch.Replier.
func (f *forwardedReplier) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	f.clientReplier.Fail(r, ops, err)
	f.ledger.answered(r.Number)
}

// ledger is the account of the pops that one other bridge forwarded to this one.
type ledger struct {
	wake  func() // asks for a report now
	batch int    // so many answers are worth one

	repliers map[*endpoint]*forwardedReplier // made on demand, by the subscription's goroutine alone

	mu struct {
		sync.Mutex
		floor, high uint64
		lost        []span
		pending     map[uint64]struct{}
		changed     bool // since the last report
		answers     int  // since the last report
		idle        int  // heartbeats without anything new
	}
}

// maxLost bounds the spans of lost numbers that a ledger keeps.
const maxLost = 64

// newLedger begins with a number that has not come yet.
func newLedger(first uint64, batch int, wake func()) *ledger {
	l := &ledger{wake: wake, batch: max(batch, 1), repliers: map[*endpoint]*forwardedReplier{}}
	l.mu.floor, l.mu.high = first, first-1
	l.mu.pending = map[uint64]struct{}{}
	return l
}

// arrive notes that a pop came. It returns false if the pop must not be run,
// because it was reported lost.
func (l *ledger) arrive(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number <= l.mu.high {
		return false
	}
	l.missLocked(number - 1)
	l.mu.high = number
	l.mu.pending[number] = struct{}{}
	l.mu.changed = true
	return true
}

// sentUpTo notes that all numbers up to this one were sent.
func (l *ledger) sentUpTo(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missLocked(number)
	l.mu.changed = true
}

// missLocked notes that what is missing up to a number will not come.
func (l *ledger) missLocked(upTo uint64) {
	if upTo <= l.mu.high {
		return
	}
	l.mu.lost = append(l.mu.lost, span{l.mu.high + 1, upTo})
	l.mu.high = upTo
	if len(l.mu.lost) > maxLost {
		l.mu.floor = l.mu.lost[0].last + 1
		l.mu.lost = slices.Delete(l.mu.lost, 0, 1)
	}
}

func (l *ledger) answered(number uint64) {
	l.mu.Lock()
	delete(l.mu.pending, number)
	l.mu.changed = true
	l.mu.answers++
	enough := l.mu.answers == l.batch
	l.mu.Unlock()
	if enough {
		l.wake()
	}
}

// report returns the account. due says whether there is anything that the other
// bridge might not know, and idle for how many calls in a row there was not.
func (l *ledger) report() (r report, due bool, idle int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due = l.mu.changed || len(l.mu.pending) > 0
	l.mu.changed, l.mu.answers = false, 0
	l.mu.idle++
	if due {
		l.mu.idle = 0
	}
	r = report{floor: l.mu.floor, high: l.mu.high, lost: slices.Clone(l.mu.lost)}
	for number := range l.mu.pending {
		r.pending = append(r.pending, number)
	}
	slices.Sort(r.pending)
	return r, due, l.mu.idle
}

const flagFinal = 1

// encode returns the report in about limit bytes. If the pending numbers need
// more it tells of lower numbers only.
func (r report) encode(limit int) []byte {
	var pending []byte
	previous := r.floor
	count, high := 0, r.high
	for _, number := range r.pending {
		if len(pending) >= limit {
			high = number - 1
			break
		}
		pending = binary.AppendVarint(pending, int64(number-previous)) // may be below the floor
		previous = number
		count++
	}
	var flags byte
	if r.final {
		flags = flagFinal
	}
	data := binary.AppendUvarint([]byte{flags}, r.floor)
	data = binary.AppendUvarint(data, high)
	data = binary.AppendUvarint(data, uint64(len(r.lost)))
	for _, s := range r.lost {
		data = binary.AppendUvarint(data, s.first)
		data = binary.AppendUvarint(data, s.last-s.first)
	}
	data = binary.AppendUvarint(data, uint64(count))
	return append(data, pending...)
}

var errReport = errors.New("a report that cannot be read")

func parseReport(data []byte) (r report, err error) {
	if len(data) == 0 {
		return r, errReport
	}
	r.final = data[0]&flagFinal != 0
	d := varints{rest: data[1:]}
	r.floor, r.high = d.unsigned(), d.unsigned()
	for range d.count() {
		first := d.unsigned()
		r.lost = append(r.lost, span{first, first + d.unsigned()})
	}
	previous := r.floor
	for range d.count() {
		previous += uint64(d.signed())
		r.pending = append(r.pending, previous)
	}
	ordered := slices.IsSorted(r.pending) && slices.IsSortedFunc(r.lost, func(a, b span) int {
		if a.last < b.first {
			return -1
		}
		return 1
	})
	if d.bad || len(d.rest) > 0 || !ordered {
		return report{}, errReport
	}
	return r, nil
}

// varints reads numbers until something is wrong.
type varints struct {
	rest []byte
	bad  bool
}

func (v *varints) unsigned() uint64 {
	n, used := binary.Uvarint(v.rest)
	v.skip(used)
	return n
}

func (v *varints) signed() int64 {
	n, used := binary.Varint(v.rest)
	v.skip(used)
	return n
}

func (v *varints) skip(used int) {
	if used <= 0 {
		v.rest, v.bad = nil, true
		return
	}
	v.rest = v.rest[used:]
}

// count is a number of things of which each takes at least a byte.
func (v *varints) count() uint64 {
	n := v.unsigned()
	if n > uint64(len(v.rest)) {
		v.rest, v.bad = nil, true
		return 0
	}
	return n
}

// forward is a pop that was forwarded to another bridge.
type forward struct {
	dispatch.Request
	number uint64
	seen   int // own heartbeat in which the other was last known to have it
}

// failedForward is a forwarded pop that no other bridge answers, and what to tell
// its client.
type failedForward struct {
	dispatch.Request
	err error
}

var (
	errPeerGone = fmt.Errorf("%w: the bridge that pops from this queue is gone, the pop may or may not have been done",
		kv.ErrCommitUnknown)
	errPeerSilent = fmt.Errorf("%w: the bridge that pops from this queue does not say what became of the pop, which may or may not have been done",
		kv.ErrCommitUnknown)
	errForwardLost = fmt.Errorf("%w: the pop did not reach the bridge that pops from this queue and was not run: try again",
		ErrUnavailable)
)

// settle removes from forwards, which are in the order of their numbers, what
// the report says was answered, and returns what it says was lost.
func settle(forwards []forward, r report, now int) (kept []forward, lost []failedForward) {
	kept = forwards[:0]
	pending, spans := r.pending, r.lost
	for i := range forwards {
		f := &forwards[i]
		for len(pending) > 0 && pending[0] < f.number {
			pending = pending[1:]
		}
		for len(spans) > 0 && spans[0].last < f.number {
			spans = spans[1:]
		}
		switch {
		case len(pending) > 0 && pending[0] == f.number:
			f.seen = now
			kept = append(kept, *f)
		case f.number > r.high:
			kept = append(kept, *f)
		case f.number < r.floor:
			lost = append(lost, failedForward{f.Request, errPeerSilent})
		case len(spans) > 0 && spans[0].first <= f.number:
			lost = append(lost, failedForward{f.Request, errForwardLost})
		}
	}
	clear(forwards[len(kept):])
	if r.final {
		for i := range kept {
			lost = append(lost, failedForward{kept[i].Request, errPeerGone})
		}
		kept = nil
	}
	return kept, lost
}
