package peers

import (
	"slices"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// forward is a pop that was forwarded to a peer.
type forward struct {
	dispatch.Request
	number uint64 // under which it was forwarded
	seen   int    // own heartbeat at which the peer was last known to have it
}

// peer is another bridge that shares the store.
type peer struct {
	silent   int  // own heartbeats since it was last heard
	leaving  bool // it wants no more pops
	reported bool // since the last heartbeat

	last     uint64 // number of the pop forwarded last
	tail     uint64 // last as of the previous heartbeat
	high     uint64 // the highest number it has reported
	forwards []forward
	waiters  forwardedWaiters // not in forwards

	waits bool // for items, so this bridge rings
	rings bool // because somebody waits

	// subject is that of the pop forwarded last. Its first prefix bytes are the same for
	// all pops.
	subject []byte
	prefix  int
}

// newPeer returns a peer. Pops forwarded to it get numbers above the given one.
func newPeer(subject string, number uint64) *peer {
	return &peer{last: number, tail: number, high: number, subject: []byte(subject), prefix: len(subject)}
}

// applyReport removes the pops that the report says were answered, and removes and
// returns those that will not be.
func (p *peer) applyReport(r Report, now int) (lost []failedForward) {
	kept := p.forwards[:0]
	pending, spans := r.Pending, r.Lost

	// The forwards and both lists are ordered by number, so one pass is enough.
	for i := range p.forwards {
		f := &p.forwards[i]
		for len(pending) > 0 && pending[0] < f.number {
			pending = pending[1:]
		}
		for len(spans) > 0 && spans[0].Last < f.number {
			spans = spans[1:]
		}

		switch {
		case len(pending) > 0 && pending[0] == f.number:
			f.seen = now
			kept = append(kept, *f)
		case f.number > r.High:
			kept = append(kept, *f)
		case f.number < r.Floor:
			lost = append(lost, failedForward{f.Request, f.number, errPeerSilent})
		case len(spans) > 0 && spans[0].First <= f.number:
			lost = append(lost, failedForward{f.Request, f.number, errForwardLost})
		}
	}

	clear(p.forwards[len(kept):])
	p.forwards = kept

	lost = append(lost, p.waiters.applyReport(r)...)
	if r.Final {
		lost = append(lost, p.abandonGone()...)
	}
	return lost
}

// expire removes and returns the pops that the peer was last known to have before the
// given heartbeat.
func (p *peer) expire(before int) (lost []failedForward) {
	p.forwards = slices.DeleteFunc(p.forwards, func(f forward) bool {
		if f.seen < before {
			lost = append(lost, failedForward{f.Request, f.number, errPeerSilent})
		}
		return f.seen < before
	})
	return lost
}

// abandonGone removes and returns all pops that are with a peer that is gone.
func (p *peer) abandonGone() (lost []failedForward) {
	return append(p.abandon(errPeerGone), p.waiters.abandon(errPeerGone)...)
}

// abandon removes and returns all pops that are with the peer, without those that wait there:
// as long as it lives, it answers them itself.
func (p *peer) abandon(err error) (lost []failedForward) {
	for i := range p.forwards {
		lost = append(lost, failedForward{p.forwards[i].Request, p.forwards[i].number, err})
	}
	p.forwards = nil
	return lost
}
