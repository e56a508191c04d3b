package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// Router routes the pops of each queue to one bridge. Where several bridges share a
// store, pops of one queue by two of them conflict, and one of the two transactions is
// wasted. So the bridges announce themselves to each other over NATS, agree by hashing
// on an owner for each queue, and forward pops to it.
//
// # The life of a forwarded pop
//
//  1. NATS delivers a client's pop to bridge A, whose handler calls Route. The owner of
//     the queue is bridge B. A numbers the pop, publishes it to B with the client's
//     reply subject, and remembers it: forward, in forward.go.
//  2. B enters the number into its account of A's pops and runs the pop like any
//     other: receive, in receive.go. The reply goes from B straight to the client, and
//     then the account notes the number as answered: account.go.
//  3. B reports the account to A with the next heartbeat, or sooner if there is much
//     to report: sendReports, in report.go.
//  4. A forgets the pops that were answered, and itself answers those that were lost:
//     hearReport, in report.go.
//
// A pop that waits for items takes the same way, but B does not report it until it has ended:
// see forwardedWaiters.
//
// Until step 4 A is responsible for the pop. If it does not hear B for peerLife
// heartbeats it answers 503 with an unknown outcome. If the pop got lost on its way to
// B it answers 503, not run.
//
// A bridge that stops says so, waits until each peer has promised to forward nothing
// more, and sends its last report when it has answered everything.
//
// Correctness never depends on the bridges agreeing on which of them are there. If two
// of them pop from one queue, their transactions conflict and are retried.
//
// # Two kinds of heartbeats
//
// The heartbeats here are not those of Members. Those go to all bridges on one NATS,
// whatever their store and version, once a second and with all that explains a conflict;
// they decide who may serve. These go only to bridges that share the queues and speak
// this version of the protocol. They are four times as frequent, because clients wait
// for their pops while a dead peer goes unnoticed, and so they are only a few bytes
// long.
//
// # Subjects
//
// All are below a root shared only by bridges with the same store, queue group and
// prefixes:
//
//	members                       "<phase> <id>", the heartbeat of a bridge; between the two
//	                              "waits" and "rings" if it does: see bell
//	to.<id>.<from>.<n>.<subject>  pop number n from a bridge, as the client sent it
//	to.<id>.<from>.<n>            pops up to n were sent: what became of them? With
//	                              the payload "last" it promises that no more follow
//	report.<id>.<from>            what became of the pops from bridge id: see report
//	bell.<kind>.<queue>           the id of a bridge that made items available: see bell
//	cancel                        a pop that waits on some bridge, and that its client has cancelled
type Router struct {
	p    *Peers
	bell *bell

	phase   atomic.Pointer[phase]
	bridges atomic.Pointer[[]string] // ids of those that share the queues, this one included, sorted

	root      string         // of the subjects; set by Join
	inbox     string         // of what peers forward; set by Join
	running   sync.WaitGroup // run
	stop      func()         // ends run
	helloNow  chan struct{}  // has an element when a heartbeat is wanted at once
	reportNow chan struct{}  // has an element when reports are wanted at once

	// subscriptions can be read without mu, which may be held while NATS blocks.
	subscriptions atomic.Pointer[[]*nats.Subscription]

	mu struct {
		sync.Mutex
		peers    map[string]*peer
		number   uint64              // the highest that a pop was forwarded with
		beats    int                 // own heartbeats so far
		echo     bool                // this bridge has heard its own latest heartbeat
		awaited  map[string]struct{} // peers whose promises Leave still waits for
		promised chan struct{}       // closed when awaited is empty; nil unless Leave waits
		answered chan struct{}       // closed when no pop is with a peer; nil unless End waits
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
	// After peerLife heartbeats, a silent peer is considered gone. They are this
	// bridge's own heartbeats, not time: a bridge that was frozen first reads what its
	// peers sent meanwhile.
	peerLife = 5
	// leaveTime limits the wait for the promises of peers. A peer that forwards later
	// is itself responsible for those pops.
	leaveTime = 2 * peerLife * heartbeat
)

// routerVersion is part of the root, so that bridges with incompatible protocols do
// not hear each other.
const routerVersion = 4

func newRouter(p *Peers) *Router {
	r := &Router{
		p:         p,
		helloNow:  make(chan struct{}, 1),
		reportNow: make(chan struct{}, 1),
	}
	r.bell = newBell(p, r.helloNow)
	r.mu.peers = map[string]*peer{}
	r.accounts.of = map[string]*account{}
	r.bridges.Store(&[]string{p.config.Self.ID})
	r.enter(phaseAway)
	return r
}

func (r *Router) enter(p phase) { r.phase.Store(&p) }

func (r *Router) is(p phase) bool { return *r.phase.Load() == p }

// Join begins to share the queues, for the first time or again after Leave, with the
// bridges that join the same realm. Nothing is shared before, and nothing at all unless the store is.
func (r *Router) Join(realm string) error {
	if !r.p.config.Shared {
		return nil
	}
	if r.is(phaseAway) {
		r.root = fmt.Sprintf("%s%016x.", Root, xxhash.Sum64String(fmt.Sprint(routerVersion, " ", realm)))
		r.inbox = r.root + "to." + r.p.config.Self.ID + "."
		r.bell.root = r.root
		if err := r.subscribe(); err != nil {
			return fmt.Errorf("bridge: subscribe to the subjects between bridges: %w", err)
		}

		ctx, cancel := context.WithCancel(context.Background())
		r.stop = cancel
		r.running.Go(func() { r.run(ctx) })
		r.running.Go(func() { r.bell.run(ctx) })
		r.running.Go(func() { r.bell.hear(ctx) })
	}
	r.enter(phaseHere)
	signal(r.helloNow)
	return nil
}

func (r *Router) subscribe() error {
	var made []*nats.Subscription
	for subject, handle := range map[string]nats.MsgHandler{
		r.root + "members": r.hearHeartbeat,
		r.root + "report." + r.p.config.Self.ID + ".*": r.hearReport,
		r.root + "cancel": r.hearCancel,
		r.inbox + ">":     r.receive,
	} {
		s, err := r.p.config.Conn().Subscribe(subject, handle)
		if err != nil {
			return err
		}
		made = append(made, s)
		subscribed := slices.Clone(made)
		r.subscriptions.Store(&subscribed)
	}
	return nil
}

// Owns reports whether no other bridge owns the queue.
func (r *Router) Owns(kind subjects.Kind, name string) bool {
	return r.activePeers() == 0 || dispatch.Owner(kind, name, *r.bridges.Load()) == r.p.config.Self.ID
}

// Route forwards a pop to the owner of its queue if that is a peer. If it returns
// false, this bridge runs the pop. The error says why the pop could not be forwarded;
// then nobody runs it. A pop that a peer has forwarded is not forwarded again.
func (r *Router) Route(m *nats.Msg, request *dispatch.Request, o Origin) (forwarded bool, err error) {
	if r.activePeers() == 0 {
		return false, nil
	}

	owner := request.Queue.Owner(*r.bridges.Load())
	switch {
	case owner == r.p.config.Self.ID || o.Forwarded():
		return false, nil
	case wire.Imported(m.Reply): // NATS would not let this bridge publish it
		return false, nil
	}
	return r.forward(m, request, owner)
}

// Leave stops sharing the queues until Join is called again. It returns when ctx ends,
// or when all pops sent by peers have been delivered. The bridge still answers and reports
// the pops that it has.
func (r *Router) Leave(ctx context.Context) {
	if !r.is(phaseHere) {
		return
	}
	r.awaitPromises(ctx)
	r.enter(phaseLeft)
	signal(r.helloNow)
}

// awaitPromises returns when all peers have promised to forward nothing more, ctx
// ends, or leaveTime is over.
func (r *Router) awaitPromises(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()

	promised := make(chan struct{})
	r.mu.Lock()
	r.mu.awaited = map[string]struct{}{}
	for id, p := range r.mu.peers {
		if !p.leaving {
			r.mu.awaited[id] = struct{}{}
		}
	}
	r.mu.promised = promised
	r.enter(phaseLeaving)
	r.checkPromisedLocked()
	r.mu.Unlock()

	// Without a connection nobody would hear the question.
	signal(r.helloNow)
	if r.p.muted.Load() || !r.p.config.Online() {
		return
	}
	select {
	case <-promised:
	case <-ctx.Done():
	}
}

// checkPromisedLocked tells Leave when no promise is missing any more.
func (r *Router) checkPromisedLocked() {
	if r.mu.promised != nil && len(r.mu.awaited) == 0 {
		close(r.mu.promised)
		r.mu.promised = nil
	}
}

// End waits until peers have answered everything forwarded to them, answers the rest
// itself when ctx ends, and sends the last reports. By then this bridge must have
// answered everything forwarded to it.
func (r *Router) End(ctx context.Context) {
	if r.is(phaseAway) {
		return
	}

	answered := make(chan struct{})
	r.mu.Lock()
	r.mu.answered = answered
	r.checkAnsweredLocked()
	r.mu.Unlock()

	if r.p.config.Online() {
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}

	r.stop()
	r.running.Wait()
	for _, s := range *r.subscriptions.Load() {
		_ = s.Unsubscribe() // fails if the connection is closed
	}
	r.failLost(r.abandonAll())
	r.sendReports(true)
}

// run sends heartbeats and reports until ctx ends.
func (r *Router) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.helloNow:
			r.sendHeartbeat()
		case <-r.reportNow:
			r.sendReports(false)
		case <-ticker.C:
			r.failLost(r.agePeers())
			r.bell.beat()
			r.sendHeartbeat()
			r.sendReports(false)
		}
	}
}

// publish sends to peers. It does no harm if the NATS client buffers a message while
// disconnected and it arrives late.
func (r *Router) publish(subject string, data []byte) {
	if r.p.silent() {
		return
	}
	if err := r.p.config.Conn().Publish(r.root+subject, data); err != nil {
		r.p.config.Warn("cannot reach the other bridges", "error", err)
	}
}

// Cancel tells peers that the client of a request that waits, maybe there, has cancelled it.
func (r *Router) Cancel(key string) {
	if r.p.config.Shared && !r.is(phaseAway) {
		r.publish("cancel", []byte(r.p.config.Self.ID+" "+key))
	}
}

// hearCancel handles a cancel that another bridge was asked for.
func (r *Router) hearCancel(m *nats.Msg) {
	if from, key, ok := strings.Cut(string(m.Data), " "); ok && from != r.p.config.Self.ID {
		r.p.config.Cancel(key)
	}
}

// Forwards returns how many pops that this bridge has forwarded wait on peers, as far as it knows, and
// how many that peers have forwarded it has not answered.
func (r *Router) Forwards() (waiting, unanswered int) {
	r.mu.Lock()
	for _, p := range r.mu.peers {
		waiting += len(p.waiters.of)
	}
	r.mu.Unlock()

	r.accounts.Lock()
	defer r.accounts.Unlock()
	for _, a := range r.accounts.of {
		unanswered += a.unanswered()
	}
	return waiting, unanswered
}

// activePeers returns the number of other bridges that share the queues.
func (r *Router) activePeers() int {
	if !r.is(phaseHere) || r.p.muted.Load() {
		return 0
	}
	return len(*r.bridges.Load()) - 1
}

// Bridges returns the ids of the bridges that share the queues, this one included, sorted. They must not
// be changed.
func (r *Router) Bridges() []string { return *r.bridges.Load() }

// Count returns how many bridges share the queues at the moment, this one included.
func (r *Router) Count() int { return 1 + r.activePeers() }

// Dropped returns how many messages from peers the NATS client dropped. It never decreases.
func (r *Router) Dropped() int {
	if subscriptions := r.subscriptions.Load(); subscriptions != nil {
		return wire.Dropped(*subscriptions)
	}
	return 0
}

// Backlog returns what peers have sent over the main connection and no callback has
// handled yet.
func (r *Router) Backlog() (messages, bytes int) {
	if subscriptions := r.subscriptions.Load(); subscriptions != nil {
		return wire.Backlog(*subscriptions)
	}
	return 0, 0
}
