package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// peer is another bridge that shares the store.
type peer struct {
	silent   int  // heartbeats since it was heard
	leaving  bool // it does not want to be sent pops
	reported bool // since the last heartbeat

	last     uint64 // number of the pop forwarded last
	tail     uint64 // last as of the heartbeat before
	high     uint64 // highest number that it reported
	forwards []forward

	subject []byte // of the pop forwarded last
	prefix  int    // bytes of it that all have in common
}

// hear takes what a bridge says of itself.
func (r *router) hear(m *nats.Msg) {
	text, id, _ := strings.Cut(string(m.Data), " ")
	told := phase(text)
	if subjects.ValidateQueueName(id) != nil ||
		told != phaseHere && told != phaseLeaving && told != phaseLeft {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == r.b.id {
		r.mu.echo = true
		return
	}
	if told == phaseLeaving {
		defer r.promiseLocked(id)
	}
	p, known := r.mu.peers[id]
	leaving := told != phaseHere
	if !known {
		if leaving {
			return
		}
		p = &peer{last: r.mu.number, tail: r.mu.number, high: r.mu.number}
		p.subject = []byte(r.root + "to." + id + "." + r.b.id + ".")
		p.prefix = len(p.subject)
		r.mu.peers[id] = p
		signal(r.hello)
	}
	p.silent = 0
	if !known || p.leaving != leaving {
		p.leaving = leaving
		r.publishLocked()
	}
}

// promiseLocked tells a bridge that nothing comes after what was forwarded to it
// before. It is told so where those pops went, hence after them.
func (r *router) promiseLocked(id string) {
	var number uint64
	if p := r.mu.peers[id]; p != nil {
		number = p.last
	}
	r.tell(r.forwardTo(id, number), []byte(lastOne))
}

func (r *router) forwardTo(id string, number uint64) string {
	return "to." + id + "." + r.b.id + "." + strconv.FormatUint(number, 10)
}

// hearReport takes what became of the pops forwarded to a bridge.
func (r *router) hearReport(m *nats.Msg) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	report, err := parseReport(m.Data)
	if err != nil {
		r.b.quiet.nats.warn("another bridge sent nonsense", "bridge", id, "error", err)
		return
	}
	r.refuse(r.settle(id, report))
}

func (r *router) settle(id string, report report) (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[id]
	if p == nil {
		return nil
	}
	p.silent, p.reported = 0, true
	p.high = max(p.high, report.high)
	p.forwards, lost = settle(p.forwards, report, r.mu.beats)
	if report.final {
		r.removeLocked(id)
	}
	r.idleLocked()
	return lost
}

// removeLocked forgets a bridge, which must not have pops any more.
func (r *router) removeLocked(id string) {
	delete(r.mu.peers, id)
	r.releaseLocked(id)
	r.publishLocked()
}

// age lets a heartbeat pass for the other bridges: it forgets those that are not
// heard any more, asks those that do not report, and returns the pops that nobody
// will answer. While a bridge does not even hear itself it is behind with reading,
// and the silence of others means nothing.
func (r *router) age() (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.beats++
	hears := r.mu.echo || !r.b.online.Load()
	r.mu.echo = false
	for id, p := range r.mu.peers {
		if hears {
			p.silent++
		}
		if p.silent > peerLife {
			lost = append(lost, p.abandon(errPeerGone)...)
			r.removeLocked(id)
			continue
		}
		lost = append(lost, p.overdue(r.mu.beats-r.patience())...)
		if len(p.forwards) > 0 && p.forwards[0].number <= p.tail && (!p.reported || p.high < p.tail) {
			r.tell(r.forwardTo(id, p.last), nil)
		}
		p.tail, p.reported = p.last, false
	}
	r.idleLocked()
	return lost
}

// patience is the number of heartbeats after which a pop of which a bridge says
// nothing, though it is there, will not be answered by it.
func (r *router) patience() int { return peerLife + int(r.b.options.RequestTimeout/heartbeat) }

// overdue removes and returns the pops that the bridge was last known to have
// before that heartbeat.
func (p *peer) overdue(before int) (lost []failedForward) {
	p.forwards = slices.DeleteFunc(p.forwards, func(f forward) bool {
		if f.seen < before {
			lost = append(lost, failedForward{f.Request, errPeerSilent})
		}
		return f.seen < before
	})
	return lost
}

// pass forwards a pop to the bridge that pops from the queue, if that is another
// one, and says whether it did.
func (r *router) pass(m *nats.Msg, request *dispatch.Request) (passed bool, err error) {
	if r.together() == 1 {
		return false, nil
	}
	owner := request.Queue.Owner(*r.bridges.Load())
	if owner == r.b.id {
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[owner]
	if p == nil || p.leaving {
		return false, nil // since just now
	}
	if n := len(p.forwards); n >= r.b.options.MaxPending {
		return true, fmt.Errorf("%w: %d pops are with the bridge that pops from this queue: try again later", ErrOverloaded, n)
	}
	// Under the lock, so that the numbers arrive in order. A pop needs none of
	// its headers any more, and NATS might act on some with this bridge's rights.
	number := p.last + 1
	p.subject = strconv.AppendUint(p.subject[:p.prefix], number, 10)
	p.subject = append(append(p.subject, '.'), m.Subject...)
	if err := r.b.nc.PublishMsg(&nats.Msg{Subject: string(p.subject), Reply: m.Reply}); err != nil {
		return true, fmt.Errorf("%w: the bridge that pops from this queue cannot be reached: %w", ErrUnavailable, err)
	}
	p.last = number
	r.mu.number = max(r.mu.number, number)
	p.forwards = append(p.forwards, forward{Request: *request, number: number, seen: r.mu.beats})
	r.b.metrics.passed.Inc()
	return true, nil
}

// abandon returns all pops that are with others.
func (r *router) abandon() (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.peers {
		lost = append(lost, p.abandon(errPeerSilent)...)
	}
	return lost
}

func (p *peer) abandon(err error) (lost []failedForward) {
	for i := range p.forwards {
		lost = append(lost, failedForward{p.forwards[i].Request, err})
	}
	p.forwards = nil
	return lost
}

var errForwarded = errors.New("a message of another bridge that cannot be understood")

// take takes what another bridge forwards: a pop, or the mark that pops were sent.
func (r *router) take(h *handler, m *nats.Msg) {
	from, rest, _ := strings.Cut(m.Subject[len(r.inbox):], ".")
	digits, subject, isPop := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || isPop && number == 0 || !r.knows(from) && subjects.ValidateQueueName(from) != nil {
		r.b.quiet.nats.warn("another bridge sent nonsense", "error", errForwarded)
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
		r.mu.Lock()
		defer r.mu.Unlock()
		r.releaseLocked(from)
		return
	}
	signal(r.wanted)
}

// knows reports whether that bridge has forwarded something before.
func (r *router) knows(from string) bool {
	r.ledgers.Lock()
	defer r.ledgers.Unlock()
	return r.ledgers.of[from] != nil
}

// arrive enters a pop into the ledger of the bridge that forwarded it. It must
// not be run if it was given up before.
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

// ledgerLocked returns the ledger of a bridge. A new one begins with that number.
func (r *router) ledgerLocked(from string, first uint64) *ledger {
	l := r.ledgers.of[from]
	if l == nil {
		l = newLedger(first, r.b.options.MaxPending/4, func() { signal(r.wanted) })
		r.ledgers.of[strings.Clone(from)] = l // else it would keep the whole subject
	}
	return l
}
