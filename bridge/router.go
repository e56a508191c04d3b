package bridge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go"
)

// router lets one bridge pop from a queue at a time. Where several bridges
// share a store, pops of one queue by two of them conflict, and one of the two
// transactions is wasted. So the bridges tell each other over NATS who
// is there, agree by hashing on one of them for each queue, and forward to it the
// pops that NATS gave to others, with the client's reply subject, so that the
// answer goes straight to the client.
//
// Nothing depends on the bridges having the same view of who is there: if two of
// them pop from a queue, their transactions conflict and are tried again, as
// ever.
//
// The sender of a forwarded pop answers for it until the receiver reports that it
// replied. If the receiver is not heard for peerLife heartbeats the sender
// answers 503 with an unknown outcome; what got lost on the way it answers 503,
// not run. A bridge that ends says so, waits until each of the others has
// confirmed that it sends nothing more, and reports once more at the very end.
//
// Subjects, below a root that only bridges of one store, one queue group and the
// same prefixes have in common:
//
//	members                       "<phase> <id>", a heartbeat of each bridge
//	to.<id>.<from>.<n>.<subject>  pop number n from a bridge, as the client sent it
//	to.<id>.<from>.<n>            pops up to n were sent: what became of them? With
//	                              the payload "last" there will be no more
//	report.<id>.<from>            what became of the pops from bridge id: see report
//
// An engine with one writer has one bridge, and no router.
type router struct {
	b      *Bridge
	direct *direct     // keeps pops from coming to others first
	denied atomic.Bool // NATS does not let this bridge talk to others

	// watched is mu.subscriptions for backlog, which must not wait for mu.
	watched atomic.Pointer[[]*nats.Subscription]

	bridges atomic.Pointer[[]string] // ids of those that pop, this one included, sorted
	phase   atomic.Pointer[phase]

	root       string         // of the subjects, set by join
	inbox      string         // what others forward has subjects below it
	running    sync.WaitGroup // run and direct.run
	stop       func()         // ends run
	stopDirect func()         // ends direct.run
	hello      chan struct{}  // has an element when others want to hear of this bridge
	wanted     chan struct{}  // has an element when reports are wanted before the next heartbeat

	mu struct {
		sync.Mutex
		subscriptions []*nats.Subscription
		peers         map[string]*peer
		number        uint64              // the highest that a pop was forwarded with
		beats         int                 // heartbeats so far
		echo          bool                // this bridge has heard itself since the last one
		awaited       map[string]struct{} // bridges that have not promised to forward nothing more
		released      chan struct{}       // closed when there are none; nil unless leave waits
		idle          chan struct{}       // closed when no pop is with another bridge; nil unless end waits
	}
	ledgers struct {
		sync.Mutex
		of map[string]*ledger
	}
}

// phase of a bridge, as its heartbeats tell.
type phase string

const (
	phaseAway    phase = "away"    // not begun; not told
	phaseHere    phase = "here"    // pops from its share of the queues
	phaseLeaving phase = "leaving" // wants to hear from each peer that it sends nothing more
	phaseLeft    phase = "left"    // answers what it has
)

const (
	// heartbeat is how often a bridge says that it is there.
	heartbeat = 250 * time.Millisecond
	// peerLife is for how many heartbeats it is believed without being heard.
	// They are counted, not timed: a bridge that was frozen has messages to
	// look at before it takes others for dead.
	peerLife = 5
	// leaveTime bounds the wait for bridges that are there and do not promise that
	// they forward nothing more. What they forward later they answer themselves.
	leaveTime = 2 * peerLife * heartbeat
	// ledgerLife is how long the ledger of a bridge that sends nothing is kept.
	ledgerLife = 8 * peerLife
	// reportBytes is about the most that a report takes.
	reportBytes = 64 << 10
	// lastOne is the payload that says that no more will be forwarded.
	lastOne = "last"
)

func newRouter(b *Bridge) *router {
	r := &router{
		b:      b,
		direct: newDirect(b),
		hello:  make(chan struct{}, 1),
		wanted: make(chan struct{}, 1),
	}
	r.mu.peers = map[string]*peer{}
	r.ledgers.of = map[string]*ledger{}
	r.bridges.Store(&[]string{b.id})
	r.enter(phaseAway)
	return r
}

// internalRoot is what the subjects between bridges begin with.
const internalRoot = "_pqbridge."

// routerVersion is part of the root: bridges that would not understand each
// other do not hear each other.
const routerVersion = 2

func (r *router) enter(p phase) { r.phase.Store(&p) }

func (r *router) is(p phase) bool { return *r.phase.Load() == p }

// join begins to share the queues, for the first time or again after leave. realm
// is what all bridges have in common that may pop for each other.
func (r *router) join(realm string) error {
	if r.is(phaseAway) {
		r.root = fmt.Sprintf("%s%016x.", internalRoot, xxhash.Sum64String(fmt.Sprint(routerVersion, " ", realm)))
		r.inbox = r.root + "to." + r.b.id + "."
		if err := r.subscribe(); err != nil {
			return fmt.Errorf("bridge: subscribe to what other bridges say: %w", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		r.stop = cancel
		r.running.Go(func() { r.run(ctx) })
	}
	r.enter(phaseHere)
	signal(r.hello)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.direct.begin()
	r.running.Go(func() {
		defer close(done)
		r.direct.run(ctx, r.together)
	})
	r.stopDirect = func() {
		cancel()
		<-done
	}
	return nil
}

func (r *router) subscribe() error {
	h := newHandler(r.b)
	h.forwarded = true
	for subject, handle := range map[string]nats.MsgHandler{
		r.root + "members":                 r.hear,
		r.root + "report." + r.b.id + ".*": r.hearReport,
		r.inbox + ">":                      func(m *nats.Msg) { r.take(h, m) },
	} {
		s, err := r.b.nc.Subscribe(subject, handle)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.mu.subscriptions = append(r.mu.subscriptions, s)
		watched := slices.Clone(r.mu.subscriptions)
		r.watched.Store(&watched)
		r.mu.Unlock()
	}
	return nil
}

// leave returns when no other bridge forwards anything to this one any more, ctx
// ends, or leaveTime is over. What it has it still answers, and reports.
func (r *router) leave(ctx context.Context) {
	if !r.is(phaseHere) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	r.stopDirect()
	r.mu.Lock()
	r.mu.awaited = map[string]struct{}{}
	r.mu.released = make(chan struct{})
	for id, p := range r.mu.peers {
		if !p.leaving {
			r.mu.awaited[id] = struct{}{}
		}
	}
	r.enter(phaseLeaving)
	released := r.mu.released
	r.releaseLocked("")
	r.mu.Unlock()
	signal(r.hello)
	if !r.denied.Load() && r.b.online.Load() {
		select {
		case <-released:
		case <-ctx.Done():
		}
	}
	r.enter(phaseLeft)
	signal(r.hello)
}

// releaseLocked notes that a bridge sends nothing more.
func (r *router) releaseLocked(id string) {
	delete(r.mu.awaited, id)
	if r.mu.released != nil && len(r.mu.awaited) == 0 {
		close(r.mu.released)
		r.mu.released = nil
	}
}

// end waits until all that was forwarded to others is answered, answers the rest
// when ctx ends, and says goodbye. Everything that was forwarded to this bridge
// must be answered.
func (r *router) end(ctx context.Context) {
	if r.is(phaseAway) {
		return
	}
	idle := make(chan struct{})
	r.mu.Lock()
	r.mu.idle = idle
	r.idleLocked()
	r.mu.Unlock()
	if r.b.online.Load() {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	r.stop()
	r.running.Wait()
	for _, s := range r.mu.subscriptions { // which nobody changes any more
		_ = s.Unsubscribe() // fails if the connection is closed
	}
	r.refuse(r.abandon())
	r.report(true)
}

// idleLocked tells end when no pop is with another bridge.
func (r *router) idleLocked() {
	if r.mu.idle == nil {
		return
	}
	for _, p := range r.mu.peers {
		if len(p.forwards) > 0 {
			return
		}
	}
	close(r.mu.idle)
	r.mu.idle = nil
}

// run says that this bridge is there until ctx ends.
func (r *router) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hello:
			r.say()
		case <-r.wanted:
			r.report(false)
		case <-ticker.C:
			r.beat()
		}
	}
}

// beat is what happens once in a heartbeat.
func (r *router) beat() {
	r.refuse(r.age())
	r.say()
	r.report(false)
}

func (r *router) refuse(lost []failedForward) {
	for i := range lost {
		l := &lost[i]
		l.Answered = time.Now()
		l.Replier.Fail(&l.Request, nil, l.err)
	}
}

// dropped is the number of messages of other bridges that were dropped because
// this one fell behind, and of requests on the connection for busy queues.
func (r *router) dropped() int {
	r.mu.Lock()
	subscriptions := r.mu.subscriptions
	r.mu.Unlock()
	return droppedBy(subscriptions) + r.direct.dropped()
}

// backlog is what other bridges sent and this one has not looked at.
func (r *router) backlog() (messages, bytes int) {
	if subscriptions := r.watched.Load(); subscriptions != nil {
		return backlogOf(*subscriptions)
	}
	return 0, 0
}

// say tells the others. While NATS is away there is nobody to tell, and what
// is buffered for later is harmless.
func (r *router) say() {
	r.tell("members", []byte(string(*r.phase.Load())+" "+r.b.id))
}

func (r *router) tell(subject string, data []byte) {
	if r.denied.Load() || r.b.nc.IsClosed() {
		return
	}
	if err := r.b.nc.Publish(r.root+subject, data); err != nil {
		r.b.quiet.nats.warn("cannot reach the other bridges", "error", err)
	}
}

// report tells each bridge what became of the pops that it forwarded, if there is
// something to tell.
func (r *router) report(final bool) {
	type letter struct {
		to string
		report
	}
	var letters []letter
	r.ledgers.Lock()
	for id, l := range r.ledgers.of {
		report, due, idle := l.report()
		report.final = final
		if due || final {
			letters = append(letters, letter{id, report})
		}
		if idle > ledgerLife {
			delete(r.ledgers.of, id)
		}
	}
	r.ledgers.Unlock()
	limit := min(reportBytes, int(r.b.nc.MaxPayload()/2))
	for _, l := range letters {
		r.tell("report."+l.to+"."+r.b.id, l.encode(limit))
	}
}

func (r *router) publishLocked() {
	ids := []string{r.b.id}
	for id, p := range r.mu.peers {
		if !p.leaving {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if slices.Equal(ids, *r.bridges.Load()) {
		return
	}
	r.bridges.Store(&ids)
	r.b.options.Logger.Info("bridges that share the queues", "count", len(ids))
}

// together is the number of bridges that share the queues as agreed.
func (r *router) together() int {
	if r.denied.Load() || !r.is(phaseHere) {
		return 1
	}
	return len(*r.bridges.Load())
}

// signal wakes who waits for the channel, which has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
