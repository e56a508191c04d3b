package peers

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// Router routes the pops of each queue to one bridge. Where several bridges share a store, pops of
// one queue by two of them conflict, and one of the two transactions is wasted. So the bridges agree
// by hashing on an owner for each queue, and forward pops to it. Correctness never depends on it: if
// two pop from one queue, their transactions conflict and are retried.
//
// A push with a group may go among the first items, where it conflicts with a batch of pops that has
// read them. So such pushes are forwarded, too, and run in the batches of the pops. Below they are
// pops like any other.
//
// # The life of a forwarded pop
//
//  1. NATS delivers a client's pop to bridge A, whose handler calls Route; bridge B owns the queue. A
//     numbers the pop, publishes it to B with the client's reply subject, and remembers it: route.go.
//  2. B enters the number into its account of A's pops and runs the pop like any other: receive.go.
//     The reply goes straight to the client, and the account notes the number as answered.
//  3. B reports the account to A with the next heartbeat, or sooner if there is much to report.
//  4. A forgets the pops that were answered, and answers 503, not run, to those that were lost. A pop
//     that waits for items stays with B until a report says that it has ended.
//
// Until step 4 A is responsible for the pop. If it does not hear B for peerLife heartbeats it
// answers 503 with an unknown outcome. A bridge that stops says so, waits until each peer has promised
// to forward nothing more, and sends its last report when it has answered everything.
//
// # Two kinds of heartbeats
//
// The announcements of Members go to all bridges on one NATS, once a second and with all that
// explains a conflict. Heartbeats go only to bridges that share the queues and speak this version of
// the protocol, so that in a rolling upgrade no bridge forwards to one that would not understand it.
// They are a few bytes four times as often, because the clients of a dead peer wait until it is
// missed: 1.5 s, as docs/operations.md promises.
//
// # Subjects
//
// All are below a root shared only by bridges with the same store, queue group and prefixes:
//
//	members                       "<phase> <id>", the heartbeat of a bridge; between the two
//	                              "waits" and "rings" if it does: see bell
//	to.<id>.<from>.<n>.<subject>  pop number n from a bridge, as the client sent it
//	to.<id>.<from>.<n>            pops up to n were sent: what became of them? With the payload
//	                              "last" it promises that no more follow
//	report.<id>.<from>            what became of the pops from bridge id: see Report
//	bell.<kind>.<queue>           the id of a bridge that made items available: see bell
//	cancel                        a pop that waits on some bridge, and that its client has cancelled
type Router struct {
	p    *peering
	bell *bell

	phase   atomic.Pointer[phase]
	bridges atomic.Pointer[[]string] // ids of those that share the queues, this one included, sorted

	root      string         // of the subjects; set by Join
	inbox     string         // of what peers forward; set by Join
	running   sync.WaitGroup // run
	stop      func()         // ends run
	helloNow  chan struct{}  // has an element when a heartbeat is wanted at once
	reportNow chan struct{}  // has an element when reports are wanted at once
	changed   chan struct{}  // has an element when what Leave or End awaits may have come

	// subscriptions can be read without mu, which may be held while NATS blocks.
	subscriptions atomic.Pointer[[]*nats.Subscription]

	mu struct {
		sync.Mutex
		peers   map[string]*peer
		number  uint64              // the highest that a pop was forwarded with
		beats   int                 // own heartbeats so far
		echo    bool                // this bridge has heard its own latest heartbeat
		awaited map[string]struct{} // peers whose promises Leave still waits for
	}
	accounts struct {
		sync.Mutex
		of map[string]*account
	}
}

// phase of a bridge, as its heartbeats say.
type phase string

const (
	phaseAway    phase = "away"    // has not joined; never sent
	phaseHere    phase = "here"    // pops from its share of the queues
	phaseLeaving phase = "leaving" // asks each peer to promise that it forwards nothing more
	phaseLeft    phase = "left"    // still answers what it has
)

const (
	// heartbeat is how often a bridge announces itself to its peers.
	heartbeat = 250 * time.Millisecond
	// After peerLife heartbeats, a silent peer is considered gone. They are this bridge's own
	// heartbeats, not time: a bridge that was frozen first reads what its peers sent meanwhile.
	peerLife = 5
	// leaveTime limits the wait for the promises of peers. A peer that forwards later is itself
	// responsible for those pops.
	leaveTime = 2 * peerLife * heartbeat
)

// routerVersion is part of the root, so that bridges with incompatible protocols do not hear each
// other.
const routerVersion = 4

func newRouter(p *peering) *Router {
	r := &Router{
		p:         p,
		helloNow:  make(chan struct{}, 1),
		reportNow: make(chan struct{}, 1),
		changed:   make(chan struct{}, 1),
	}
	r.bell = newBell(p, r.helloNow)
	r.mu.peers = map[string]*peer{}
	r.accounts.of = map[string]*account{}
	r.subscriptions.Store(&[]*nats.Subscription{})
	r.bridges.Store(&[]string{p.config.Self.ID})
	r.enter(phaseAway)
	return r
}

func (r *Router) enter(p phase) { r.phase.Store(&p) }

func (r *Router) is(p phase) bool { return *r.phase.Load() == p }

// Owner returns the id of the bridge that owns a queue.
func (r *Router) Owner(q *dispatch.Queue) string {
	if r.activePeers() == 0 {
		return r.p.config.Self.ID
	}
	return q.Owner(*r.bridges.Load())
}

// Owns reports whether no other bridge owns the queue.
func (r *Router) Owns(kind subjects.Kind, name string) bool {
	return r.activePeers() == 0 || dispatch.Owner(kind, name, *r.bridges.Load()) == r.p.config.Self.ID
}

// activePeers returns the number of other bridges that share the queues.
func (r *Router) activePeers() int {
	if !r.is(phaseHere) || r.p.muted.Load() {
		return 0
	}
	return len(*r.bridges.Load()) - 1
}

// Bridges returns the ids of the bridges that share the queues, this one included, sorted. The
// caller must not change them.
func (r *Router) Bridges() []string { return *r.bridges.Load() }

// Count returns how many bridges share the queues at the moment, this one included.
func (r *Router) Count() int { return 1 + r.activePeers() }

// publish sends to peers.
func (r *Router) publish(subject string, data []byte) { r.p.publish(r.root+subject, data) }

// lastOne is the payload that promises that no more pops will be forwarded.
const lastOne = "last"

// markSubject returns the subject that tells a peer that pops up to a number were sent to it.
func (r *Router) markSubject(id string, number uint64) string {
	return "to." + id + "." + r.p.config.Self.ID + "." + strconv.FormatUint(number, 10)
}

// notePromise records that a peer forwards nothing more.
func (r *Router) notePromise(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.awaited, id)
	signal(r.changed)
}

// Waits says that a pop may wait for items on this bridge.
func (r *Router) Waits() { r.bell.began() }

// Filled says that this bridge has made items of a queue available.
func (r *Router) Filled(q *dispatch.Queue) { r.bell.filled(q) }

// noteBellLocked records what a peer says about its bells.
func (r *Router) noteBellLocked(p *peer, waits, rings bool) {
	began := rings && !p.rings
	p.waits, p.rings = waits, rings
	r.updatePeersWaitLocked()

	// Items may have come before it began.
	if began {
		r.bell.recheck()
	}
}

// updatePeersWaitLocked rings from now on if a peer waits, or no longer if none does.
func (r *Router) updatePeersWaitLocked() {
	waits := false
	for _, p := range r.mu.peers {
		waits = waits || p.waits
	}
	if r.bell.peersWait.Swap(waits) != waits {
		signal(r.helloNow)
	}
}

// Forwards returns how many pops that this bridge has forwarded wait on peers, as far as it knows,
// and how many pops that peers have forwarded it has not answered.
func (r *Router) Forwards() (waiting, unanswered int) {
	r.mu.Lock()
	for _, p := range r.mu.peers {
		waiting += len(p.waiting) + p.newWaits
	}
	r.mu.Unlock()

	r.accounts.Lock()
	defer r.accounts.Unlock()
	for _, a := range r.accounts.of {
		unanswered += a.unanswered()
	}
	return waiting, unanswered
}

// Dropped returns how many messages from peers the NATS client dropped. It never decreases.
func (r *Router) Dropped() int {
	return wire.Dropped(*r.subscriptions.Load())
}

// Backlog returns what peers have sent over the main connection and no callback has handled yet.
func (r *Router) Backlog() (messages, bytes int) {
	return wire.Backlog(*r.subscriptions.Load())
}
