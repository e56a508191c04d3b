package peers

import (
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
		if o, run := r.arrive(from, number); run {
			m.Subject = subject
			r.p.config.Receive(m, o)
		}
		return
	}

	if number > 0 {
		r.sentUpTo(from, number)
	}

	if string(m.Data) != lastOne {
		signal.To(r.reportNow)
		return
	}

	r.mu.Lock()
	delete(r.mu.awaited, from)
	r.mu.Unlock()
	signal.To(r.changed)
}

// arrive enters a pop into the intake of the peer that forwarded it. run is false if the
// pop was reported lost before.
func (r *Router) arrive(from string, number uint64) (o Origin, run bool) {
	r.intakes.Lock()
	defer r.intakes.Unlock()
	a := r.intakeLocked(from, number)
	return Origin{a, number}, a.arrive(number)
}

func (r *Router) sentUpTo(from string, number uint64) {
	r.intakes.Lock()
	defer r.intakes.Unlock()
	r.intakeLocked(from, number+1).sentUpTo(number)
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
	// numberBytes is the size of a number in a report, at most.
	numberBytes = len("18446744073709551615,")
)

// After intakeLife heartbeats, the intake of a peer that forwards nothing is dropped.
const intakeLife = 8 * peerLife

// sendReports reports to each peer what became of the pops it forwarded, if there is anything new.
// Nothing follows a final report.
func (r *Router) sendReports(final bool) {
	type addressed struct {
		to string
		Report
	}

	var reports []addressed

	r.intakes.Lock()
	for id, a := range r.intakes.of {
		latest, due, idle := a.report()
		latest.Final = final
		if due || final {
			reports = append(reports, addressed{id, latest})
		}
		if idle > intakeLife {
			delete(r.intakes.of, id)
		}
	}

	r.intakes.Unlock()

	// Without the lock, because NATS may block.
	limit := min(reportBytes, int(r.p.config.Conn().MaxPayload()/2))
	for _, a := range reports {
		for _, part := range a.split(limit / numberBytes) {
			r.publish("report."+a.to+"."+r.p.config.Self.ID, part.Encode(limit))
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

	heard, err := ParseReport(m.Data)
	if err != nil {
		r.p.config.Warn("another bridge sent a report that cannot be read",
			"bridge", id, "error", err)
		return
	}
	failLost(r.applyReport(id, heard))
}

// applyReport forgets the pops that a peer has answered, and returns what it will not answer.
func (r *Router) applyReport(id string, heard Report) (lost []forward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[id]
	if p == nil {
		return nil
	}

	p.silent, p.reported = 0, true
	lost = p.applyReport(heard, r.mu.beats)
	for i := range lost {
		if lost[i].err == errAnswerLost {
			r.tellLost(id, &lost[i])
		}
	}
	if heard.Final {
		r.removeLocked(id)
	}

	signal.To(r.changed)
	return lost
}
