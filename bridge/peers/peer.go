package peers

import (
	"slices"
	"time"
)

// agePeers is called once per heartbeat. It forgets peers that have been silent for too long, asks
// those that should have reported, and returns the pops that no peer will answer.
//
// A bridge that does not even hear its own heartbeats is behind with reading, so the silence of
// others means nothing.
func (r *Router) agePeers() (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.beats++

	hears := r.mu.echo || !r.p.config.Online()
	r.mu.echo = false
	for id, p := range r.mu.peers {
		if hears {
			p.silent++
		}
		if p.silent > peerLife {
			lost = append(lost, p.abandonGone()...)
			r.removeLocked(id)
			continue
		}

		lost = append(lost, p.expire(r.mu.beats-r.forwardLife())...)
		if r.mu.beats%expireEvery == 0 {
			lost = append(lost, p.waiters.expire(time.Now())...)
		}

		// It should have reported by now, if it got what was forwarded before the last heartbeat.
		overdue := len(p.forwards) > 0 && p.forwards[0].number <= p.tail && (!p.reported || p.high < p.tail)
		if overdue || p.waiters.overdue(p.tail) {
			r.publish(r.markSubject(id, p.last), nil)
		}
		p.tail, p.reported = p.last, false
	}
	r.checkAnsweredLocked()
	return lost
}

// removeLocked forgets a peer that no longer has any pops of this bridge.
func (r *Router) removeLocked(id string) {
	delete(r.mu.peers, id)
	r.updatePeersWaitLocked()
	r.notePromiseLocked(id)
	r.updateBridgesLocked()
}

// updateBridgesLocked shares the queues among the present peers.
func (r *Router) updateBridgesLocked() {
	ids := []string{r.p.config.Self.ID}
	for id, p := range r.mu.peers {
		if !p.leaving {
			ids = append(ids, id)
		}
	}

	slices.Sort(ids)
	if slices.Equal(ids, *r.bridges.Load()) {
		return
	}

	r.bridges.Store(&ids)
	r.p.config.Dispatcher.OwnersChanged()
	r.p.config.Logger.Info("bridges that share the queues", "count", len(ids))
}
