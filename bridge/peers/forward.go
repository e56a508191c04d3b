package peers

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// forward is a pop that was forwarded to a peer.
type forward struct {
	dispatch.Request
	number uint64 // under which it was forwarded
	seen   int    // own heartbeat at which the peer was last known to have it
}

// failedForward is a forwarded pop that no peer will answer, and what to tell its
// client.
type failedForward struct {
	dispatch.Request
	number uint64
	err    error
}

var (
	errPeerGone = fmt.Errorf("%w: the bridge that pops from this queue is gone, the pop may or may not have been done",
		kv.ErrCommitUnknown)
	errPeerSilent = fmt.Errorf("%w: the bridge that pops from this queue does not say what became of the pop, which may or may not have been done",
		kv.ErrCommitUnknown)
	errForwardLost = fmt.Errorf("%w: the pop did not reach the bridge that pops from this queue and was not run: try again",
		dispatch.ErrUnavailable)
)

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

// Route forwards a pop to the owner of its queue if that is a peer. If it returns false, this
// bridge runs the pop. The error says why the pop could not be forwarded; then nobody runs it. A
// pop that a peer has forwarded is not forwarded again.
func (r *Router) Route(m *nats.Msg, request *dispatch.Request, o Origin) (forwarded bool, err error) {
	if r.activePeers() == 0 {
		return false, nil
	}

	owner := request.Queue.Owner(*r.bridges.Load())
	switch {
	case owner == r.p.config.Self.ID || o.Forwarded():
		return false, nil
	case wire.Imported(m.Reply): // NATS would not let this bridge publish it
		return false, nil
	}
	return r.forward(m, request, owner)
}

// forward sends a pop to its owner, unless the owner has just left.
func (r *Router) forward(m *nats.Msg, request *dispatch.Request, owner string) (forwarded bool, err error) {
	// The lock is held while publishing, so that the numbers arrive in order.
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[owner]
	if p == nil || p.leaving {
		return false, nil
	}

	if request.Wait != nil {
		if len(p.waiters.of) >= r.p.config.MaxWaiters {
			return false, dispatch.ErrTooManyWaiters
		}
	} else if n := len(p.forwards); n >= r.p.config.MaxPending {
		return false, fmt.Errorf("%w: %d pops are with the bridge that pops from this queue: try again later", dispatch.ErrOverloaded, n)
	}

	number := p.last + 1
	p.subject = strconv.AppendUint(p.subject[:p.prefix], number, 10)
	p.subject = append(append(p.subject, '.'), m.Subject...)

	// Even one that waits is forwarded as it came, because its time has hardly begun. A pop no
	// longer needs any of its headers, and NATS might act on some of them with this bridge's
	// permissions.
	if err := r.p.config.Conn().PublishMsg(&nats.Msg{Subject: string(p.subject), Reply: m.Reply, Data: m.Data}); err != nil {
		return false, fmt.Errorf("%w: the bridge that pops from this queue cannot be reached: %w", dispatch.ErrUnavailable, err)
	}

	p.last = number
	r.mu.number = max(r.mu.number, number)
	r.p.config.Forwarded()
	if request.Wait != nil {
		waiter := *request
		p.waiters.add(number, &waiter)
		return true, nil
	}
	p.forwards = append(p.forwards, forward{*request, number, r.mu.beats})
	return true, nil
}

// applyReport removes the pops that the report says were answered, and removes and
// returns those that will not be.
func (p *peer) applyReport(r Report, now int) (lost []failedForward) {
	kept := p.forwards[:0]
	pending, spans := r.Pending, r.Lost
	for i := range p.forwards { // ordered by number
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

// After forwardLife heartbeats, a pop that a peer does not mention, though it is alive,
// counts as lost.
func (r *Router) forwardLife() int { return peerLife + int(r.p.config.RequestTimeout/heartbeat) }

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

// abandonAll removes and returns all pops that are with peers, without those that wait there.
func (r *Router) abandonAll() (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.peers {
		lost = append(lost, p.abandon(errPeerSilent)...)
	}
	return lost
}

// failLost answers the pops that no peer will answer.
func (r *Router) failLost(lost []failedForward) {
	for i := range lost {
		l := &lost[i]
		l.Answered = time.Now()
		l.Replier.Fail(&l.Request, nil, l.err)
	}
}
