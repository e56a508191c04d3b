package peers

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// Route forwards a pop, or a push with a group, to the owner of its queue if that is a peer. If it
// returns false, this bridge runs the request. The error says why it could not be forwarded; then
// nobody runs it. What a peer has forwarded is not forwarded again.
func (r *Router) Route(m *nats.Msg, request *dispatch.Request, o Origin) (forwarded bool, err error) {
	owner := r.Owner(request.Queue)
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
		if len(p.waiting)+p.newWaits >= r.p.config.MaxWaiters {
			return false, dispatch.ErrTooManyWaiters
		}
	} else if n := len(p.forwards) - p.newWaits; n >= r.p.config.MaxPending {
		return false, fmt.Errorf("%w: %d requests are with the bridge that pops from this queue: try again later", dispatch.ErrOverloaded, n)
	}

	number := p.last + 1
	p.subject = strconv.AppendUint(p.subject[:p.prefix], number, 10)
	p.subject = append(append(p.subject, '.'), m.Subject...)

	// Even one that waits is forwarded as it came, because its time has hardly begun. The headers are
	// those of a push: NATS might act on others with this bridge's permissions.
	err = r.p.config.Conn().PublishMsg(&nats.Msg{Subject: string(p.subject), Reply: m.Reply, Header: m.Header, Data: m.Data})
	if errors.Is(err, nats.ErrMaxPayload) {
		return false, nil // the client has written its headers in fewer bytes
	}
	if err != nil {
		return false, fmt.Errorf("%w: the bridge that pops from this queue cannot be reached: %w", dispatch.ErrUnavailable, err)
	}

	p.add(forward{*request, number, r.mu.beats})
	r.mu.number = max(r.mu.number, number)
	r.p.config.Forwarded()
	return true, nil
}

// After forwardLife heartbeats, a pop that a peer does not mention, though it is alive,
// counts as lost.
func (r *Router) forwardLife() int { return peerLife + int(r.p.config.RequestTimeout/heartbeat) }

// abandonAll removes and returns all pops that are with peers, without those that wait there.
func (r *Router) abandonAll() (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.peers {
		lost = append(lost, p.abandon(errPeerSilent)...)
	}
	return lost
}
