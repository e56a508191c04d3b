package peers

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// forward is a request that was forwarded to a peer: a pop or, of few queues, a push.
type forward struct {
	dispatch.Request
	number uint64 // under which it was forwarded
	seen   int    // own heartbeat at which the peer was last known to have it
	err    error  // what to tell the client once no peer will answer

	relayed bool     // the answers come back through this bridge
	ended   bool     // and the client has them all
	passed  []string // reply subjects of answers that were passed on, and others follow
}

// failed returns a copy that no peer will answer, with what to tell its client.
func (f *forward) failed(err error) forward {
	lost := *f
	lost.err = err
	return lost
}

// fail answers a pop in place of the peer.
func (f *forward) fail(err error) {
	failLost([]forward{f.failed(err)})
	f.ended = true
}

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

// failLost answers the pops that no peer will answer.
func failLost(lost []forward) {
	for i := range lost {
		l := &lost[i]
		l.Answered = time.Now()
		l.Replier.Fail(&l.Request, nil, l.err)
	}
}

// peer is another bridge that shares the store.
type peer struct {
	silent   int  // own heartbeats since it was last heard
	leaving  bool // it wants no more pops
	reported bool // since this bridge's latest heartbeat

	last     uint64    // number of the pop forwarded last
	tail     uint64    // last as of the previous heartbeat
	high     uint64    // the highest number it has reported
	forwards []forward // not answered yet, as far as this bridge knows, in order
	newWaits int       // how many of the forwards have a Wait

	// waiting has the pops that wait for items there, as far as this bridge knows. They can be many
	// and stay for long, so the peer does not list them in each report. It only names ended ones,
	// once. ends is Report.Ends of the latest report. If one is lost, the pops that are answered
	// through this bridge count as ended. The others are forgotten when their time is over: as long
	// as the peer lives, it answers them.
	waiting map[uint64]*forward
	ends    int

	// What its heartbeats say: see bell.
	waits bool // pops wait there, so this bridge rings
	rings bool // it rings when it has made items available

	ended uint64 // the newest number of its messages about jobs that have ended; 0 is none

	maxPayload int64 // bytes of the largest message that its NATS server takes; 0 if it did not say
}

// waiterGrace is how much later than promised the peer may answer a pop that waits.
const waiterGrace = 5 * time.Second

// newPeer returns a peer to which nothing was forwarded. The first pop gets the number after this
// one.
func newPeer(number uint64) *peer {
	return &peer{
		last: number, tail: number, high: number,
		waiting: map[uint64]*forward{}, ends: math.MaxInt / 2, // unknown
	}
}

// add remembers a pop that was forwarded just now.
func (p *peer) add(f forward) {
	p.last = f.number
	p.forwards = append(p.forwards, f)
	if f.Wait != nil {
		p.newWaits++
	}
}

// keep replaces the forwards by the ones left, in the same memory.
func (p *peer) keep(left []forward) {
	clear(p.forwards[len(left):])
	p.forwards, p.newWaits = left, 0
	for i := range left {
		if left[i].Wait != nil {
			p.newWaits++
		}
	}
}

// applyReport removes the pops that the report says were answered. It also removes the pops that
// will not be answered, and returns them. Answers through this bridge come before the report that
// mentions them, or never.
func (p *peer) applyReport(r Report, now int) (lost []forward) {
	kept := p.forwards[:0]
	pending, spans, ended := r.Pending, r.Lost, r.Ended

	// The forwards and all lists are ordered by number, so one pass is enough.
	for i := range p.forwards {
		f := &p.forwards[i]
		for len(pending) > 0 && pending[0] < f.number {
			pending = pending[1:]
		}

		for len(spans) > 0 && spans[0].Last < f.number {
			spans = spans[1:]
		}

		for len(ended) > 0 && ended[0] < f.number {
			ended = ended[1:]
		}

		switch over := len(ended) > 0 && ended[0] == f.number; {
		case f.ended, over && !f.relayed:
		case over:
			lost = append(lost, f.failed(errAnswerLost))
		case len(pending) > 0 && pending[0] == f.number:
			f.seen = now
			kept = append(kept, *f)
		case f.number > r.High:
			kept = append(kept, *f)
		case f.number < r.Floor:
			lost = append(lost, f.failed(errPeerSilent))
		case len(spans) > 0 && spans[0].First <= f.number:
			lost = append(lost, f.failed(errForwardLost))
		case f.Wait != nil: // the peer has it, and it waits there
			waits := *f
			p.waiting[f.number] = &waits
		case f.relayed:
			lost = append(lost, f.failed(errAnswerLost))
		}
	}

	p.keep(kept)

	for _, number := range r.Ended {
		if f := p.waiting[number]; f != nil && f.relayed {
			lost = append(lost, f.failed(errAnswerLost))
		}
		delete(p.waiting, number)
	}

	// Nobody knows which of them ended with a report that was lost. An intake that is new to this
	// bridge knows of none.
	unknown := r.Floor > p.high
	if unknown {
		p.ends = 0
	}
	ends := cmp.Or(r.Ends, p.ends+len(r.Ended))
	missed := ends-len(r.Ended) > p.ends
	if p.ends, p.high = ends, max(p.high, r.High); missed || unknown {
		lost = append(lost, p.endWaiting(errAnswerLost, func(f *forward) bool {
			return f.relayed && (missed || f.number < r.Floor)
		})...)
	}

	if r.Final {
		lost = append(lost, p.abandonAll(errPeerGone)...)
	}

	return lost
}

// expire removes and returns the pops that the peer was last known to have before the given
// heartbeat, except for pops that may still wait there.
func (p *peer) expire(before int, now time.Time) (lost []forward) {
	kept := p.forwards[:0]
	for i := range p.forwards {
		// A peer that lives answers a pop that waits in time.
		f := &p.forwards[i]
		waits := f.Wait != nil && now.Before(f.Wait.Until.Add(waiterGrace))
		if f.ended {
			continue
		}
		if f.seen < before && !waits {
			lost = append(lost, f.failed(errPeerSilent))
		} else {
			kept = append(kept, *f)
		}
	}

	p.keep(kept)
	return lost
}

// expireWaiting removes the pops that wait and whose time is over.
func (p *peer) expireWaiting(now time.Time) (lost []forward) {
	return p.endWaiting(errPeerSilent, func(f *forward) bool {
		return !now.Before(f.Wait.Until.Add(waiterGrace))
	})
}

// endWaiting removes the pops that wait and are over. It returns those whose answers would have
// come through this bridge.
func (p *peer) endWaiting(err error, over func(f *forward) bool) (lost []forward) {
	for number, f := range p.waiting {
		if !over(f) {
			continue
		}
		delete(p.waiting, number)
		if f.relayed {
			lost = append(lost, f.failed(err))
		}
	}
	return lost
}

// abandon removes and returns all pops that are with the peer, except for pops that wait there:
// as long as it lives, it answers them itself.
func (p *peer) abandon(err error) (lost []forward) {
	for i := range p.forwards {
		if f := &p.forwards[i]; !f.ended {
			lost = append(lost, f.failed(err))
		}
	}
	p.keep(p.forwards[:0])
	return lost
}

// abandonAll also abandons pops that wait there, because the peer is gone.
func (p *peer) abandonAll(err error) (lost []forward) {
	lost = p.abandon(err)
	for _, f := range p.waiting {
		lost = append(lost, f.failed(err))
	}
	clear(p.waiting)
	return lost
}
