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
	// After accountLife heartbeats, the account of a peer that forwards nothing is
	// dropped.
	accountLife = 8 * peerLife
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
		if o, run := r.arrive(from, number); run {
			m.Subject = subject
			h.take(m, o)
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

// forwardedReplier answers the clients of pops that a peer has forwarded, and then
// records that in the account. The report that says so is published later on the same
// connection, so the reply arrives before it.
type forwardedReplier struct {
	*clientReplier
	account *account
}

// Answer implements dispatch.Replier.
func (f *forwardedReplier) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	f.clientReplier.Answer(r, ops, results)
	f.account.answered(r.Number)
}

// Deliver implements dispatch.Replier.
func (f *forwardedReplier) Deliver(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) (more bool) {
	if more = f.clientReplier.Deliver(r, ops, results); !more {
		f.account.answered(r.Number)
	}
	return more
}

// Fail implements dispatch.Replier.
func (f *forwardedReplier) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	f.clientReplier.Fail(r, ops, err)
	f.account.answered(r.Number)
}

// knows reports whether there is an account of the peer.
func (r *router) knows(from string) bool {
	r.accounts.Lock()
	defer r.accounts.Unlock()
	return r.accounts.of[from] != nil
}

// arrive enters a pop into the account of the peer that forwarded it. run is false if the
// pop was reported lost before.
func (r *router) arrive(from string, number uint64) (o origin, run bool) {
	r.accounts.Lock()
	defer r.accounts.Unlock()
	a := r.accountLocked(from, number)
	return origin{a, number}, a.arrive(number)
}

func (r *router) sentUpTo(from string, number uint64) {
	r.accounts.Lock()
	defer r.accounts.Unlock()
	r.accountLocked(from, number+1).sentUpTo(number)
}

// accountLocked returns the account of a peer. A new one begins with the number first.
func (r *router) accountLocked(from string, first uint64) *account {
	a := r.accounts.of[from]
	if a == nil {
		a = newAccount(first, r.b.options.MaxPending/4, func() { signal(r.reportNow) })
		r.accounts.of[strings.Clone(from)] = a // a substring would keep the whole subject in memory
	}
	return a
}
