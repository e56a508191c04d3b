package peers

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/subjects"
)

var errForwarded = errors.New("its subject has no number, or no name of a bridge")

// receive handles messages from peers: pops, and marks that tell up to which number pops were sent.
func (r *Router) receive(m *nats.Msg) {
	from, rest, _ := strings.Cut(m.Subject[len(r.inbox):], ".")
	digits, subject, isPop := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || isPop && number == 0 || subjects.ValidateQueueName(from) != nil {
		r.p.config.Warn("another bridge sent a message that cannot be read", "error", errForwarded)
		return
	}

	if isPop {
		r.intakes.Lock()
		a := r.intakeLocked(from, number)
		run := a.arrive(number)
		r.intakes.Unlock()
		if run {
			m.Subject = subject
			r.p.config.Receive(m, Origin{a, number})
		}
		return
	}

	if number > 0 {
		heard, _ := strconv.ParseUint(string(m.Data), 10, 64) // 0 confirms nothing
		r.intakes.Lock()
		r.intakeLocked(from, number+1).mark(number, heard)
		r.intakes.Unlock()
	}

	if string(m.Data) == lastOne {
		r.mu.Lock()
		delete(r.mu.awaited, from)
		r.mu.Unlock()
		signal.To(r.changed)
	}
}

// intakeLocked returns the intake of a peer. A new one begins with the number first.
func (r *Router) intakeLocked(from string, first uint64) *intake {
	a := r.intakes.of[from]
	if a == nil {
		a = newIntake(first, r.p.config.MaxPending/4, func() { signal.To(r.reportNow) })
		r.intakes.of[strings.Clone(from)] = a // a substring would keep the whole subject in memory
	}
	return a
}

const (
	// reportBytes is the approximate size of the largest report.
	reportBytes = 256 << 10
	// numberBytes is the size of a pop in a report, at most.
	numberBytes = len(`{"First":18446744073709551615,"Last":18446744073709551615},`)
)

// sendReports reports to each peer which of the pops that it forwarded have ended: since the last
// report or, with all, those that it has not confirmed. Nothing follows a final report.
func (r *Router) sendReports(all, final bool) {
	limit := min(reportBytes, int(r.p.config.Conn().MaxPayload()/2))
	reports := map[string][]Report{}

	r.intakes.Lock()
	for id, a := range r.intakes.of {
		pieces, gone := a.report(all, limit/numberBytes)
		if final {
			pieces = append(pieces, Report{Final: true})
		}
		if gone {
			delete(r.intakes.of, id)
		}
		reports[id] = pieces
	}
	r.intakes.Unlock()

	// Without the lock, because NATS may block.
	for id, pieces := range reports {
		for _, piece := range pieces {
			data, _ := json.Marshal(piece) // never returns an error for this type
			r.publish("report."+id+"."+r.p.config.Self.ID, data)
		}
	}
}

// hearReport handles the report of a peer on what became of the pops forwarded to it.
func (r *Router) hearReport(m *nats.Msg) {
	_, rest, _ := strings.Cut(m.Subject[len(r.root):], ".") // "report"
	_, rest, _ = strings.Cut(rest, ".")                     // this bridge
	id, number, isRelayed := strings.Cut(rest, ".")
	if isRelayed {
		r.relay(m, id, number)
		return
	}

	var heard Report
	if err := json.Unmarshal(m.Data, &heard); err != nil {
		r.p.config.Warn("another bridge sent a report that cannot be read",
			"bridge", id, "error", err)
		return
	}
	r.failLost(r.applyReport(id, heard))
}

// applyReport forgets the pops that a peer has answered, and returns what it will not answer.
func (r *Router) applyReport(id string, heard Report) (lost []*forward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[id]
	if p == nil {
		return nil
	}

	p.silent = 0
	lost = p.applyReport(heard)
	if heard.Final {
		r.removeLocked(id)
	}

	signal.To(r.changed)
	return lost
}
