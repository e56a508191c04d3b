package peers

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// Router forwards requests to the bridge that owns their queue. Where several bridges share a
// store, pops of one queue by two of them conflict, and one of the two transactions is wasted. So
// the bridges agree by hashing on an owner for each queue, and forward to it:
//
//   - pops, with and without a lease
//   - acknowledgements with +NXT, because they lease the next item
//   - pushes with a group: an item may go among the first ones, where it would conflict with a
//     batch of pops that has read them
//   - changes of settings, because the owner draws from the source in them
//
// Below, "pop" means any of these. Correctness never depends on forwarding: if two bridges pop from
// one queue, their transactions conflict and are retried.
//
// # The life of a forwarded pop
//
//  1. NATS delivers a client's pop to bridge A, whose handler calls Route; bridge B owns the queue.
//     A numbers the pop, publishes it to B with the client's reply subject, and remembers it.
//  2. B enters the number into its intake of A's pops and runs the pop like any other: receive.go.
//     The reply goes straight to the client, and the intake notes the number as answered. What
//     takes items without a lease is answered through A: see below. If B gets a number that does
//     not follow the one before, NATS has lost those between, and B will never run them.
//  3. B reports with the next heartbeat which pops were answered, or sooner if there are many, and
//     at once which were lost. A forgets the former, and answers 503, not run, to the latter.
//  4. With its next heartbeat, A marks how far it has sent and how much of what ended it has heard.
//     So B finds out if the last pop was lost, and repeats what A has not heard.
//
// Until step 3 A is responsible for the pop. If it does not hear B for peerLife heartbeats it
// answers 503 with an unknown outcome; so it does if B is there and has not reported the pop some
// time after its end. While pops wait and nothing happens, there are no reports and no marks. A
// bridge that stops says so, waits until each peer has promised to forward nothing more, and sends
// its last report when it has answered everything.
//
// # The way back
//
// A reply that comes after A's 503 finds nobody who reads it. If it brings leased items, their
// leases end. Items popped without a lease would be lost, so their way to the client leads through
// A, which knows: relay.go. A passes the message on, and tells B whether somebody was there to
// receive it. If A has already answered, or the time of the request is over, it says so, and B puts
// the items back. B keeps them until it knows: outbox/relayed.go.
//
// If NATS loses the message, the report says that the pop was answered, and A knows better: it
// answers 503, unknown, and B puts back what A has not passed on. If A's server takes smaller
// messages than B's, A runs its pops itself. And B ends the pops that wait for A once A is gone.
//
// # What B must not run any more
//
// A change of settings or a push that B runs after A has answered 503 could undo what others were
// told since. So B runs neither once it has not heard itself for about as long as it takes A to
// give up: see selfEcho. What remains is a transaction that has begun by then.
//
// # Two kinds of heartbeats
//
// The announcements of Members go to all bridges on one NATS, once a second and with all that
// explains a conflict. Heartbeats go only to bridges that share the queues and speak this version
// of the protocol. So in a rolling upgrade no bridge forwards to one that would not understand it.
// They are a few bytes four times as often, because the clients of a dead peer wait until it is
// missed: 1.5 s, as docs/cluster.md promises.
//
// # Subjects
//
// All are below a root shared only by bridges with the same store, queue group and prefixes:
//
//	members                       "<phase> <id> <time> <bytes>", the heartbeat of a bridge;
//	                              between phase and id "waits" and "rings" if it does: see
//	                              bell. The time is for the bridge itself: see selfEcho. The
//	                              bytes are the largest message that its NATS server takes
//	to.<id>.<from>.<n>.<subject>  pop number n from a bridge, as the client sent it
//	to.<id>.<from>.<n>            a mark: pops up to n were sent. The payload is how much of what
//	                              ended was heard, see Report.After; or "last": no more follow
//	report.<id>.<from>            which of the pops from bridge id have ended: see Report
//	report.<id>.<from>.<n>        an answer to pop number n from bridge id, for its client
//	fate.<id>                     "<fate> <token> ...": what became of such answers from bridge
//	                              id; or "lost <subject> <token> ...": of all to that subject,
//	                              only these were passed on
//	bell.<kind>.<queue>           the id of a bridge that made items available: see bell
//	waits                         the id of a bridge on which requests wait for outcomes of jobs
//	ended                         "<id> <n>", then "<kind> <queue> <job> ..." in a line for each
//	                              queue: jobs that have ended there, message number n; without
//	                              jobs, n is the newest so far: see endings
//	cancel                        "<id> <key>": the client of a pop that waits has cancelled it
//	source                        "<id> <kind> <queue>": that bridge has changed its source
type Router struct {
	p       *peering
	bell    *bell
	endings *endings

	phase atomic.Pointer[phase]
	// bridges has the ids of the bridges that share the queues, this one included, sorted.
	bridges atomic.Pointer[[]string]

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
	intakes struct {
		sync.Mutex
		of map[string]*intake
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

// routerVersion is part of the root, so that bridges with incompatible protocols do not hear each
// other.
const routerVersion = 9

func newRouter(p *peering) *Router {
	r := &Router{
		p:         p,
		helloNow:  make(chan struct{}, 1),
		reportNow: make(chan struct{}, 1),
		changed:   make(chan struct{}, 1),
	}

	r.bell = &bell{p: p, waiters: p.config.Dispatcher.Waiters, wakeAll: p.config.Dispatcher.WakeAll}
	r.endings = &endings{p: p, publish: r.publish}
	r.mu.peers = map[string]*peer{}
	r.intakes.of = map[string]*intake{}
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
	if r.activePeers() == 0 {
		return true
	}
	return dispatch.Owner(kind, name, *r.bridges.Load()) == r.p.config.Self.ID
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

// Knows reports whether a bridge is among those that share the queues.
func (r *Router) Knows(id string) bool { return slices.Contains(*r.bridges.Load(), id) }

// Count returns how many bridges share the queues at the moment, this one included.
func (r *Router) Count() int { return 1 + r.activePeers() }

// answersOf returns the subject of a peer's answers to a pop, for this bridge to pass on.
func (r *Router) answersOf(id string, number uint64) string {
	return r.root + "report." + r.p.config.Self.ID + "." + id + "." +
		strconv.FormatUint(number, 10)
}

// publish sends to peers.
func (r *Router) publish(subject string, data []byte) { r.p.publish(r.root+subject, data) }

// lastOne is the payload that promises that no more pops will be forwarded.
const lastOne = "last"

// pathOf returns the subject, below the root, that tells a peer that pops up to a number were sent
// to it. The client's subject follows it in the subject of the pop itself.
func (r *Router) pathOf(id string, number uint64) string {
	return "to." + id + "." + r.p.config.Self.ID + "." + strconv.FormatUint(number, 10)
}
