package peers

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

var errForwarded = errors.New("its subject has no number, or no name of a bridge")

// receive handles messages from peers: pops, and marks that tell up to which number pops were sent.
func (r *Router) receive(m *nats.Msg) {
	from, rest, _ := strings.Cut(m.Subject[len(r.inbox):], ".")
	digits, subject, isPop := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || isPop && number == 0 || !r.knows(from) && subjects.ValidateQueueName(from) != nil {
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
	if string(m.Data) == lastOne {
		r.notePromise(from)
	} else {
		signal(r.reportNow)
	}
}

// knows reports whether there is an account of the peer.
func (r *Router) knows(from string) bool {
	r.accounts.Lock()
	defer r.accounts.Unlock()
	return r.accounts.of[from] != nil
}

// arrive enters a pop into the account of the peer that forwarded it. run is false if the
// pop was reported lost before.
func (r *Router) arrive(from string, number uint64) (o Origin, run bool) {
	r.accounts.Lock()
	defer r.accounts.Unlock()
	a := r.accountLocked(from, number)
	return Origin{a, number}, a.arrive(number)
}

func (r *Router) sentUpTo(from string, number uint64) {
	r.accounts.Lock()
	defer r.accounts.Unlock()
	r.accountLocked(from, number+1).sentUpTo(number)
}

// accountLocked returns the account of a peer. A new one begins with the number first.
func (r *Router) accountLocked(from string, first uint64) *account {
	a := r.accounts.of[from]
	if a == nil {
		a = newAccount(first, r.p.config.MaxPending/4, func() { signal(r.reportNow) })
		r.accounts.of[strings.Clone(from)] = a // a substring would keep the whole subject in memory
	}
	return a
}
