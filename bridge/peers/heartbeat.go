package peers

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/subjects"
)

// Words of a heartbeat between the phase and the id, in this order: see bell.
const (
	saidWaits = "waits"
	saidRings = "rings"
)

// sendHeartbeat announces this bridge to its peers.
func (r *Router) sendHeartbeat() {
	words := []string{string(*r.phase.Load())}
	if r.bell.waits.Load() {
		words = append(words, saidWaits)
	}
	if r.bell.peersWait.Load() {
		words = append(words, saidRings)
	}
	words = append(words, r.p.config.Self.ID, r.p.selfEcho.now(),
		strconv.FormatInt(r.p.config.Conn().MaxPayload(), 10))
	r.publish("members", []byte(strings.Join(words, " ")))
	r.endings.sayWaits()
}

// hearHeartbeat handles the heartbeats of all bridges, including this one.
func (r *Router) hearHeartbeat(m *nats.Msg) {
	text, rest, _ := strings.Cut(string(m.Data), " ")
	rest, waits := strings.CutPrefix(rest, saidWaits+" ")
	rest, rings := strings.CutPrefix(rest, saidRings+" ")
	id, rest, _ := strings.Cut(rest, " ")
	at, bytes, _ := strings.Cut(rest, " ")
	maxPayload, err := strconv.ParseInt(cmp.Or(bytes, "0"), 10, 64)
	said := phase(text)

	if err != nil || subjects.ValidateQueueName(id+at) != nil ||
		said != phaseHere && said != phaseLeaving && said != phaseLeft {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if id == r.p.config.Self.ID {
		r.mu.echo = true
		r.p.hear(at)
		return
	}

	// A bridge that leaves waits for this promise.
	if said == phaseLeaving {
		defer r.promiseLocked(id)
	}

	leaving := said != phaseHere
	p, known := r.mu.peers[id]
	if !known {
		if leaving {
			return
		}

		// Numbers never start over, even if the peer was forgotten by mistake and still has an
		// intake of this bridge.
		p = newPeer(r.mu.number)
		r.mu.peers[id] = p
		signal.To(r.helloNow) // it may not know this bridge either
	}

	p.silent = 0
	p.maxPayload = maxPayload
	r.noteBellLocked(p, waits, rings)
	if !known || p.leaving != leaving {
		p.leaving = leaving
		r.updateBridgesLocked()
	}
}

// promiseLocked promises a peer that this bridge forwards nothing more to it. The promise travels
// the same way as forwarded pops, so it arrives after them.
func (r *Router) promiseLocked(id string) {
	var number uint64
	if p := r.mu.peers[id]; p != nil {
		number = p.last
	}
	r.publish(r.pathOf(id, number), []byte(lastOne))
}

// expireEvery is how many heartbeats pass between two searches for pops whose time is over.
const expireEvery = 4

// agePeers is called once per heartbeat. It forgets peers that have been silent for too long, marks
// for the others what they were sent, and returns the pops that no peer will answer.
//
// A bridge that does not even hear its own heartbeats is behind with reading, so the silence of
// others means nothing.
func (r *Router) agePeers() (lost []*forward) {
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
			lost = append(lost, p.end(errPeerGone, func(*forward) bool { return true })...)
			r.removeLocked(id)
			continue
		}

		if r.mu.beats%expireEvery == 0 {
			over := func(f *forward) bool { return f.due <= r.mu.beats }
			lost = append(lost, p.end(errPeerSilent, over)...)
		}

		if p.owesMark() {
			p.said = p.heard
			r.publish(r.pathOf(id, p.last), strconv.AppendUint(nil, p.heard, 10))
		}
	}

	signal.To(r.changed)
	return lost
}

// removeLocked forgets a peer that no longer has any pops of this bridge.
func (r *Router) removeLocked(id string) {
	delete(r.mu.peers, id)
	r.endWaits(id)
	r.updatePeersWaitLocked()
	delete(r.mu.awaited, id)
	r.updateBridgesLocked()
	r.p.config.OwnersChanged() // while it was leaving, it may have changed what its peers had seen
	r.p.config.LookAll()       // it may have ended jobs without a tell
}

// endWaits ends the pops of a peer that wait here and would be answered through it.
func (r *Router) endWaits(id string) {
	r.intakes.Lock()
	a := r.intakes.of[id]
	r.intakes.Unlock()
	if a == nil {
		return
	}

	a.mu.Lock()
	waiting := slices.Collect(maps.Values(a.mu.open))
	a.mu.Unlock()
	for _, w := range waiting {
		r.p.config.Dispatcher.Cancel(w)
	}
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
	r.p.config.OwnersChanged()
	r.p.config.Logger.Info("bridges that share the queues", "count", len(ids))
}

// noteBellLocked records what a peer says about its bells.
func (r *Router) noteBellLocked(p *peer, waits, rings bool) {
	began := rings && !p.rings
	p.saysWaits, p.rings = waits, rings
	r.updatePeersWaitLocked()

	// Items may have come before it began.
	if began {
		r.bell.wakeAll()
	}
}

// updatePeersWaitLocked rings from now on if a peer waits, or no longer if none does.
func (r *Router) updatePeersWaitLocked() {
	waits := false
	for _, p := range r.mu.peers {
		waits = waits || p.saysWaits
	}
	if r.bell.peersWait.Swap(waits) != waits {
		signal.To(r.helloNow)
	}
}
