package peers

import (
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// forward is a request that was forwarded to a peer: a pop or, of few queues, a push.
type forward struct {
	dispatch.Request
	owner  string // the peer
	number uint64 // under which it was forwarded
	due    int    // own heartbeat at which this bridge answers if the peer does not say that it has
	err    error  // what to tell the client once no peer will answer

	relayed bool     // the answers come back through this bridge
	passed  []string // reply subjects of answers that were passed on, and others follow
}

// forwards has memory for forwards: there may be one for each request.
var forwards = sync.Pool{New: func() any { return new(forward) }}

var (
	errPeerGone = fmt.Errorf("%w: the bridge that pops from this queue is gone, the request may "+
		"or may not have been done", dispatch.ErrUnknownOutcome)
	errPeerSilent = fmt.Errorf("%w: the bridge that pops from this queue does not say what became "+
		"of the request, which may or may not have been done", dispatch.ErrUnknownOutcome)
	errAnswerLost = fmt.Errorf("%w: NATS lost the answer of the bridge that pops from this queue",
		dispatch.ErrUnknownOutcome)
	errForwardLost = fmt.Errorf("%w: the request did not reach the bridge that pops from this "+
		"queue and was not run: try again", dispatch.ErrUnavailable)
)

// peer is another bridge that shares the store.
type peer struct {
	silent  int  // own heartbeats since it was last heard
	leaving bool // it wants no more pops

	// forwards has the pops that are not answered yet, as far as this bridge knows, by number.
	forwards map[uint64]*forward
	waits    int    // how many of the forwards have a Wait
	last     uint64 // number of the pop forwarded last
	high     uint64 // the highest number that it says has arrived

	// heard is how much of what ended this bridge has heard, see Report.After; said is heard as of
	// the latest mark.
	heard, said uint64

	// What its heartbeats say: see bell.
	saysWaits bool // pops wait there, so this bridge rings
	rings     bool // it rings when it has made items available

	ended uint64 // the newest number of its messages about jobs that have ended; 0 is none

	maxPayload int64 // bytes of the largest message that its NATS server takes; 0 if it did not say
}

// waiterGrace is how much later than promised the peer may answer a pop that waits.
const waiterGrace = 5 * time.Second

// newPeer returns a peer to which nothing was forwarded. The first pop gets the number after this
// one.
func newPeer(number uint64) *peer {
	return &peer{last: number, high: number, forwards: map[uint64]*forward{}}
}

// add remembers a pop that was forwarded just now.
func (p *peer) add(f *forward) {
	p.last = f.number
	p.forwards[f.number] = f
	if f.Wait != nil {
		p.waits++
	}
}

// remove forgets a pop that is answered.
func (p *peer) remove(f *forward) {
	delete(p.forwards, f.number)
	if f.Wait != nil {
		p.waits--
	}
}

// free returns the memory of a pop that is answered.
func (f *forward) free() {
	*f = forward{}
	forwards.Put(f)
}

// lose removes a pop, and returns it to be answered with err.
func (p *peer) lose(f *forward, err error) *forward {
	p.remove(f)
	f.err = err
	return f
}

// end removes the pops that are over, and returns them to be answered with err.
func (p *peer) end(err error, over func(f *forward) bool) (lost []*forward) {
	for _, f := range p.forwards {
		if over(f) {
			lost = append(lost, p.lose(f, err))
		}
	}
	return lost
}

// endSpan removes the pops with the numbers of a span, which were lost, and returns them. Many
// spans may come at once while many pops wait, so a short one looks at its own numbers only.
func (p *peer) endSpan(s Span) (lost []*forward) {
	if s.Last-s.First >= uint64(len(p.forwards)) {
		return p.end(errForwardLost, func(f *forward) bool {
			return s.First <= f.number && f.number <= s.Last
		})
	}
	for n := range s.Last - s.First + 1 {
		if f := p.forwards[s.First+n]; f != nil {
			lost = append(lost, p.lose(f, errForwardLost))
		}
	}
	return lost
}

// applyReport removes the pops that the report says were answered. It also removes the pops that
// will not be answered, and returns them. Answers through this bridge come before the report that
// mentions them, or never.
func (p *peer) applyReport(r Report) (lost []*forward) {
	for _, number := range r.Done {
		switch f := p.forwards[number]; {
		case f == nil:
		case f.relayed:
			lost = append(lost, p.lose(f, errAnswerLost))
		default:
			p.remove(f)
			f.free()
		}
	}

	for _, s := range r.Lost {
		lost = append(lost, p.endSpan(s)...)
	}

	// An intake that is new to this bridge knows nothing of the pops before.
	if r.Floor > p.high {
		lost = append(lost, p.end(errPeerSilent, func(f *forward) bool {
			return f.number < r.Floor
		})...)
	}
	if r.Final {
		lost = append(lost, p.end(errPeerGone, func(*forward) bool { return true })...)
	}

	p.high = max(p.high, r.High)
	if r.All || r.After <= p.heard {
		p.heard = r.After + uint64(len(r.Done)+len(r.Lost))
	}
	return lost
}

// owesMark reports whether the peer may not have got all that was forwarded, or does not know what
// this bridge has heard.
func (p *peer) owesMark() bool {
	return p.heard != p.said || p.high < p.last && len(p.forwards) > 0
}

// keepsWaiting reports whether the pop may wait for items there. Then the peer answers it as long
// as it lives.
func (p *peer) keepsWaiting(f *forward) bool { return f.Wait != nil && f.number <= p.high }
