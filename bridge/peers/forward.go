package peers

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// Route forwards a request of the kinds that Router lists to the owner of its queue if that is a
// peer. If it returns false, this bridge runs the request. The error says why it could not be
// forwarded; then nobody runs it. takes says that it takes items without a lease.
func (r *Router) Route(
	m *nats.Msg, request *dispatch.Request, o Origin, takes bool,
) (forwarded bool, err error) {
	// Requests that a peer has forwarded are not forwarded again. NATS would not let this bridge
	// publish the reply subject of a request from another account. And a request that has waited in
	// the socket would wait once more, where nobody knows since when.
	owner := r.Owner(request.Queue)
	imported, late := wire.Imported(m.Reply), request.Waited > 0
	if owner == r.p.config.Self.ID || o.Forwarded() || imported || late {
		return false, nil
	}

	f := forwards.Get().(*forward)
	f.Request, f.relayed = *request, takes
	return r.forward(m, f, owner)
}

// forward sends a pop to its owner, unless the owner has just left.
func (r *Router) forward(
	m *nats.Msg, f *forward, owner string,
) (forwarded bool, err error) {
	// The lock is held while publishing, so that the numbers arrive in order.
	r.mu.Lock()
	defer r.mu.Unlock()
	config, p := &r.p.config, r.mu.peers[owner]
	if p == nil || p.leaving || f.relayed && p.maxPayload > config.Conn().MaxPayload() {
		return false, nil
	}

	if f.Wait != nil {
		if p.waits >= config.MaxWaiters {
			return false, dispatch.ErrTooManyWaiters
		}
	} else if n := len(p.forwards) - p.waits; n >= config.MaxPending {
		return false, fmt.Errorf("%w: %d requests are with the bridge that pops from this queue: "+
			"try again later", dispatch.ErrOverloaded, n)
	}

	f.owner, f.number, f.due = owner, p.last+1, r.mu.beats+r.forwardLife(f)
	to, reply := r.pathOf(owner, f.number), m.Reply
	if f.relayed {
		reply = r.answersOf(owner, f.number)
	}

	// Even a pop that waits is forwarded as it came, because its time has hardly begun. The caller
	// has chosen the headers: NATS might act on others with this bridge's rights.
	err = config.Conn().PublishMsg(&nats.Msg{
		Subject: r.root + to + "." + m.Subject,
		Reply:   reply, Header: m.Header, Data: m.Data,
	})

	if errors.Is(err, nats.ErrMaxPayload) {
		return false, nil // the client has written its headers in fewer bytes
	}

	if err != nil {
		return false, fmt.Errorf("%w: the bridge that pops from this queue cannot be reached: %w",
			dispatch.ErrUnavailable, err)
	}

	p.add(f)
	r.mu.number = max(r.mu.number, f.number)
	config.Forwarded()
	return true, nil
}

// forwardLife is in how many heartbeats a peer has said what became of a pop, if it is going to.
func (r *Router) forwardLife(f *forward) int {
	life := r.p.config.RequestTimeout
	if f.Wait != nil {
		life = time.Until(f.Wait.Until) + waiterGrace
	}
	return int(life/heartbeat) + 2*peerLife
}
