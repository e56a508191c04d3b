package peers

import (
	"encoding/binary"
	"strings"

	"github.com/nats-io/nats.go"
)

// reportBytes is the approximate size of the largest report.
const reportBytes = 64 << 10

// After accountLife heartbeats, the account of a peer that forwards nothing is dropped.
const accountLife = 8 * peerLife

// sendReports reports to each peer what became of the pops it forwarded, if there is anything new.
// Nothing follows a final report.
func (r *Router) sendReports(final bool) {
	type addressed struct {
		to string
		Report
	}
	var reports []addressed

	r.accounts.Lock()
	for id, a := range r.accounts.of {
		latest, due, idle := a.report()
		latest.Final = final
		if due || final {
			reports = append(reports, addressed{id, latest})
		}
		if idle > accountLife {
			delete(r.accounts.of, id)
		}
	}
	r.accounts.Unlock()

	// Without the lock, because NATS may block.
	limit := min(reportBytes, int(r.p.config.Conn().MaxPayload()/2))
	for _, a := range reports {
		for _, part := range a.split(limit / binary.MaxVarintLen64) {
			r.publish("report."+a.to+"."+r.p.config.Self.ID, part.Encode(limit))
		}
	}
}

// hearReport handles the report of a peer on what became of the pops forwarded to it.
func (r *Router) hearReport(m *nats.Msg) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	heard, err := ParseReport(m.Data)
	if err != nil {
		r.p.config.Warn("another bridge sent a report that cannot be read", "bridge", id, "error", err)
		return
	}
	failLost(r.applyReport(id, heard))
}

// applyReport forgets the pops that a peer has answered, and returns those that it will not answer.
func (r *Router) applyReport(id string, heard Report) (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[id]
	if p == nil {
		return nil
	}

	p.silent, p.reported = 0, true
	p.high = max(p.high, heard.High)
	lost = p.applyReport(heard, r.mu.beats)
	if heard.Final {
		r.removeLocked(id)
	}
	r.checkAnsweredLocked()
	return lost
}
