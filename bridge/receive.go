package bridge

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// After ledgerLife heartbeats, the ledger of a peer that forwards nothing is
	// dropped.
	ledgerLife = 8 * peerLife
	// reportBytes is the approximate size of the largest report.
	reportBytes = 64 << 10
	// lastOne is the payload that promises that no more pops will be forwarded.
	lastOne = "last"
)

var errForwarded = errors.New("its subject has no number, or no name of a bridge")

// receive handles messages from peers: pops, and marks that tell up to which number
// pops were sent.
func (r *router) receive(h *handler, m *nats.Msg) {
	from, rest, _ := strings.Cut(m.Subject[len(r.inbox):], ".")
	digits, subject, isPop := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || isPop && number == 0 || !r.knows(from) && subjects.ValidateQueueName(from) != nil {
		r.b.quiet.nats.warn("another bridge sent a message that cannot be read", "error", errForwarded)
		return
	}
	if isPop {
		if origin, run := r.arrive(from, number); run {
			m.Subject = subject
			h.take(m, origin)
		}
		return
	}
	if number > 0 {
		r.sentUpTo(from, number)
	}
	if string(m.Data) == lastOne {
		r.notePromise(from)
	} else {
		signal(r.reportNow)
	}
}

// origin says which pop of which peer a request is. The zero value is a request that
// NATS delivered to this bridge.
type origin struct {
	ledger *ledger
	number uint64
}

// replier returns the Replier of a request of the endpoint.
func (o origin) replier(e *endpoint) dispatch.Replier {
	if o.ledger == nil {
		return e.replier
	}
	f := o.ledger.repliers[e]
	if f == nil {
		f = &forwardedReplier{e.replier, o.ledger}
		o.ledger.repliers[e] = f
	}
	return f
}

// forwardedReplier answers the clients of pops that a peer has forwarded, and then
// records that in the ledger. The report that says so is published later on the same
// connection, so the reply arrives before it.
type forwardedReplier struct {
	*clientReplier
	ledger *ledger
}

// Answer implements dispatch.Replier.
func (f *forwardedReplier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	f.clientReplier.Answer(r, ops, results)
	f.ledger.answered(r.Number)
}

// Fail implements dispatch.Replier.
func (f *forwardedReplier) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	f.clientReplier.Fail(r, ops, err)
	f.ledger.answered(r.Number)
}

// knows reports whether there is a ledger of the peer.
func (r *router) knows(from string) bool {
	r.ledgers.Lock()
	defer r.ledgers.Unlock()
	return r.ledgers.of[from] != nil
}

// arrive enters a pop into the ledger of the peer that forwarded it. run is false if the
// pop was reported lost before.
func (r *router) arrive(from string, number uint64) (o origin, run bool) {
	r.ledgers.Lock()
	defer r.ledgers.Unlock()
	l := r.ledgerLocked(from, number)
	return origin{l, number}, l.arrive(number)
}

func (r *router) sentUpTo(from string, number uint64) {
	r.ledgers.Lock()
	defer r.ledgers.Unlock()
	r.ledgerLocked(from, number+1).sentUpTo(number)
}

// ledgerLocked returns the ledger of a peer. A new one begins with the number first.
func (r *router) ledgerLocked(from string, first uint64) *ledger {
	l := r.ledgers.of[from]
	if l == nil {
		l = newLedger(first, r.b.options.MaxPending/4, func() { signal(r.reportNow) })
		r.ledgers.of[strings.Clone(from)] = l // a substring would keep the whole subject in memory
	}
	return l
}

// sendReports reports to each peer what became of the pops it forwarded, if there is
// anything new. Nothing follows a final report.
func (r *router) sendReports(final bool) {
	type addressed struct {
		to string
		report
	}
	var reports []addressed
	r.ledgers.Lock()
	for id, l := range r.ledgers.of {
		report, due, idle := l.report()
		report.final = final
		if due || final {
			reports = append(reports, addressed{id, report})
		}
		if idle > ledgerLife {
			delete(r.ledgers.of, id)
		}
	}
	r.ledgers.Unlock()
	limit := min(reportBytes, int(r.b.nc.MaxPayload()/2))
	for _, a := range reports {
		r.publish("report."+a.to+"."+r.b.id, a.encode(limit))
	}
}
