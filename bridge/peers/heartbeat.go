package peers

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// What a heartbeat says between the phase and the id, in this order: see bell.
const (
	saidWaits = "waits"
	saidRings = "rings"
)

// sendHeartbeat announces this bridge to its peers.
func (r *Router) sendHeartbeat() {
	words := []string{string(*r.phase.Load())}
	if r.bell.waits() {
		words = append(words, saidWaits)
	}
	if r.bell.peersWait.Load() {
		words = append(words, saidRings)
	}
	r.publish("members", []byte(strings.Join(append(words, r.p.config.Self.ID), " ")))
}

// hearHeartbeat handles the heartbeats of all bridges, including this one.
func (r *Router) hearHeartbeat(m *nats.Msg) {
	text, rest, _ := strings.Cut(string(m.Data), " ")
	rest, waits := strings.CutPrefix(rest, saidWaits+" ")
	id, rings := strings.CutPrefix(rest, saidRings+" ")
	said := phase(text)

	if subjects.ValidateQueueName(id) != nil ||
		said != phaseHere && said != phaseLeaving && said != phaseLeft {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if id == r.p.config.Self.ID {
		r.mu.echo = true
		return
	}

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
		// account of this bridge.
		p = newPeer(r.root+"to."+id+"."+r.p.config.Self.ID+".", r.mu.number)
		r.mu.peers[id] = p
		signal(r.helloNow) // it may not know this bridge either
	}

	p.silent = 0
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
	r.publish(r.markSubject(id, number), []byte(lastOne))
}
