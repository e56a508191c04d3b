package jetstream

import (
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// ending is how a pull ends: with a status, or with none if the code is 0.
type ending struct {
	code    int
	text    string
	pending bool // the status says what the pull did not get
}

var (
	// silent ends pulls that nobody listens to, or that have all they want.
	silent = &ending{}
	// serverShutdown ends pulls when the bridge stops. Clients pull again, from another bridge.
	serverShutdown = &ending{code: 409, text: "Server Shutdown"}
	// leaderChanged makes clients pull again at once.
	leaderChanged = &ending{code: 409, text: "Leadership Change"}
	deleted       = &ending{code: 409, text: "Consumer Deleted"}
	maxWaiting    = &ending{code: 409, text: "Exceeded MaxWaiting"}
	noMessages    = &ending{code: 404, text: "No Messages"}
	timedOut      = &ending{code: 408, text: "Request Timeout", pending: true}
	tooLarge      = &ending{code: 409, text: "Message Size Exceeds MaxBytes", pending: true}
	completed     = &ending{code: 409, text: "Batch Completed", pending: true}
)

// Why a pull could not send an item, besides the errors of leaf.
var (
	// errNoListener: nobody subscribes to the inbox of a pull.
	errNoListener = errors.New("nobody subscribes to the inbox")
	// errLeaseOver: the leases have ended, because the store took so long, or the process stood
	// still.
	errLeaseOver = errors.New("the leases are over")
	// errMaxBytes: an item exceeds the rest of the max_bytes of a pull.
	errMaxBytes = errors.New("the item exceeds max_bytes")
)

// endingUnsent returns how a pull that could not send an item ends at once, nil if it goes on.
func (p *pull) endingUnsent(unsent error) *ending {
	is := func(target error) bool { return errors.Is(unsent, target) }
	switch {
	case unsent == nil, is(leaf.ErrTooLarge):
		return nil
	case is(errNoListener), is(leaf.ErrOffline), is(leaf.ErrDenied):
		return silent
	case is(errLeaseOver), is(leaf.ErrPending):
		return leaderChanged
	case is(errMaxBytes):
		return tooLarge
	}

	return p.endingAfter(unsent)
}

// endingDone returns how a pull that has everything it may have ends, nil if it may have more.
func (p *pull) endingDone() *ending {
	switch {
	case p.Batch > 0 && p.limited && p.MaxBytes <= 0:
		return tooLarge
	case p.Batch > 0:
		return nil
	case p.limited && p.MaxBytes > 0:
		return completed
	}

	return silent
}

// endingAfter returns how a pull ends after an error. The status is never 503: whatever its text,
// clients take a 503 to mean "nobody is there", but the pull may have leased items.
func (p *pull) endingAfter(err error) *ending {
	switch {
	case errors.Is(err, fdbpq.ErrEmpty), errors.Is(err, fdbpq.ErrMaxLeased):
		return p.ifEmpty
	case errors.Is(err, fdbpq.ErrMaxBytes):
		return tooLarge
	case errors.Is(err, dispatch.ErrOverloaded):
		return p.noRoom()
	}

	code, text := p.f.config.ErrorText(err)
	if code == 503 {
		code = 409
	}
	return &ending{code: code, text: text}
}

// noRoom returns how a pull ends if there is no room for it. As in JetStream, clients that expect
// heartbeats are not told. They pull again once heartbeats are missing, not at once.
func (p *pull) noRoom() *ending {
	if p.pullRequest.Heartbeat > 0 {
		return silent
	}
	return maxWaiting
}

// say sends the status that ends the pull.
func (p *pull) say(e *ending) {
	p.f.config.Counted(countedPull, e.code >= 400 && e.code != 404 && e.code != 408)
	if e.code == 0 {
		return
	}

	var pairs []string
	if e.pending {
		pairs = []string{
			"Nats-Pending-Messages", strconv.Itoa(p.Batch),
			"Nats-Pending-Bytes", strconv.Itoa(max(p.MaxBytes, 0)),
		}
	}
	p.f.status(p.to(time.Now()), e.code, e.text, pairs...)
}

// endMatching ends the pulls that match.
func (f *pulls) endMatching(e *ending, match func(*pull) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, pulls := range f.inboxes {
		for p := range pulls {
			if match(p) {
				p.endLocked(e)
			}
		}
	}
}

// dropPulls ends all pulls because the connection is lost: clients pull again.
func (f *pulls) dropPulls() { f.endMatching(silent, func(*pull) bool { return true }) }

// endForeign ends the pulls of queues that another bridge serves now, and drops what is
// outstanding of their consumers. Clients pull again, and acknowledge there.
func (f *pulls) endForeign() {
	foreign := func(k consumerKey) bool {
		q, err := f.queueOf(k.stream)
		return err == nil && f.config.Owner(q) != f.config.Self
	}
	f.endMatching(leaderChanged, func(p *pull) bool { return foreign(p.consumer.consumerKey) })

	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.byConsumer, func(k consumerKey, _ *ackPending) bool { return foreign(k) })
}

// endPulls ends all pulls because the bridge stops, and lets none begin.
func (f *pulls) endPulls() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.endMatching(serverShutdown, func(*pull) bool { return true })
}

// interestGone ends the pulls whose inbox nobody subscribes to any more. Pulls whose client
// subscribes by a wildcard end with their next heartbeat.
func (f *pulls) interestGone(subject string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for p := range f.inboxes[subject] {
		p.endLocked(silent)
	}
}
