package peers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// bell tells the bridges on which pops wait that another one has made items available.
//
// Each queue has a subject. A bridge subscribes to it while pops of that queue wait there, and
// a little longer, because the next pop often follows soon. Whoever makes items available
// publishes there once they are durable, but only while a peer says in its heartbeats that it waits
// for anything at all: otherwise a push costs nothing. If a ring gets lost, the dispatcher finds the
// items when it next looks for those of programs that do not ring: see dispatch.Options.PollEvery.
//
// Nothing is missed when waiting begins. The order is: subscribe; wait until NATS has the
// subscription; say "waits"; the peers begin to ring, and say "rings". After each of the two
// confirmations the pops look once more for what came before it.
type bell struct {
	p         *peering
	root      string // of the subjects; set by Join
	helloNow  chan struct{}
	rings     chan *nats.Msg // from all subscriptions, so that none needs a goroutine
	work      chan struct{}  // has an element when there is something for run to do
	peersWait atomic.Bool    // a peer waits, so this bridge rings

	mu struct {
		sync.Mutex
		queues map[string]*bellQueue // by subject
		idle   map[string]*bellQueue // those of queues on which no pop waits
		fresh  []*bellQueue          // those of queues that are new
		missed bool                  // items may have come without a ring
		waits  bool                  // peers have to ring
	}
}

// bellQueue is a queue whose bell this bridge listens to.
type bellQueue struct {
	queue        atomic.Pointer[dispatch.Queue]
	subject      string
	subscription atomic.Pointer[nats.Subscription] // nil until run has subscribed
	beats        int                               // heartbeats since the last pop waited
}

const (
	// bellLife is how many heartbeats, 2 s, a bridge listens to a bell after the last pop
	// that waited for it.
	bellLife = 8
	// maxRings is how many rings may wait to be heard. More are dropped.
	maxRings = 1 << 13
)

func newBell(p *peering, helloNow chan struct{}) *bell {
	l := &bell{p: p, helloNow: helloNow, rings: make(chan *nats.Msg, maxRings), work: make(chan struct{}, 1)}
	l.mu.queues = map[string]*bellQueue{}
	l.mu.idle = map[string]*bellQueue{}
	return l
}

func bellSubject(root string, q *dispatch.Queue) string {
	return root + "bell." + q.Kind.String() + "." + q.Name
}

// waitersChanged is Router.WaitersChanged.
func (l *bell) waitersChanged(q *dispatch.Queue, waiting bool) {
	subject := bellSubject(l.root, q)

	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.mu.queues[subject]
	switch {
	case known == nil && waiting:
		known = &bellQueue{subject: subject}
		known.queue.Store(q)
		l.mu.queues[subject] = known
		l.mu.fresh = append(l.mu.fresh, known)
		signal(l.work)
	case known == nil:
	case waiting:
		known.queue.Store(q) // the registry may have made a new object
		known.beats = 0
		delete(l.mu.idle, subject)
	default:
		l.mu.idle[subject] = known
	}
}

// filled is Router.Filled. What is due later is rung for at once: the waiters look,
// and then know when.
func (l *bell) filled(q *dispatch.Queue) {
	if !l.peersWait.Load() || l.p.silent() {
		return
	}
	if err := l.p.config.Conn().Publish(bellSubject(l.root, q), []byte(l.p.config.Self.ID)); err != nil {
		l.p.config.Warn("cannot ring the bell of a queue", "error", err)
	}
}

// run subscribes until ctx ends.
func (l *bell) run(ctx context.Context) {
	for {
		select {
		case <-l.work:
			l.listen(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// listen subscribes to the bells that were added, and has pops look for items that may have
// come before this bridge could hear of them.
func (l *bell) listen(ctx context.Context) {
	if l.p.muted.Load() {
		return // until the next connection: see recheck
	}

	look := l.takeFresh()
	if len(look) == 0 {
		return
	}

	// One round trip confirms all of them.
	for _, q := range look {
		l.subscribe(q)
	}
	if err := l.p.config.Flush(ctx); err != nil {
		// NATS is away, and recheck follows; or it is slow, and the next heartbeat tries again.
		l.mu.Lock()
		l.mu.missed = true
		l.mu.Unlock()
		return
	}

	l.setWaits()
	for _, q := range look {
		l.p.config.Dispatcher.Wake(q.queue.Load())
	}
}

// takeFresh returns the queues that have to be looked at. Some have no subscription yet.
func (l *bell) takeFresh() []*bellQueue {
	l.mu.Lock()
	defer l.mu.Unlock()
	look := l.mu.fresh
	if l.mu.missed {
		look = slices.Collect(maps.Values(l.mu.queues))
	}
	l.mu.fresh, l.mu.missed = nil, false
	return look
}

// subscribe subscribes to a bell, unless that was done. The lock is not held meanwhile, because
// NATS may block, and lanes need the lock.
func (l *bell) subscribe(q *bellQueue) {
	if q.subscription.Load() != nil {
		return
	}

	s, err := l.p.config.Conn().ChanSubscribe(q.subject, l.rings)
	if err != nil {
		return // the connection is closed
	}
	q.subscription.Store(s)

	// beat may have removed the queue meanwhile, before there was a subscription to end.
	l.mu.Lock()
	gone := l.mu.queues[q.subject] != q
	l.mu.Unlock()
	if gone {
		q.unsubscribe()
	}
}

// unsubscribe ends the subscription, if there is one.
func (q *bellQueue) unsubscribe() {
	if s := q.subscription.Swap(nil); s != nil {
		_ = s.Unsubscribe() // fails if the connection is closed
	}
}

// setWaits makes this bridge say "waits".
func (l *bell) setWaits() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.waits && len(l.mu.queues) > 0 {
		l.mu.waits = true
		signal(l.helloNow)
	}
}

// waits reports whether peers have to ring.
func (l *bell) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.waits
}

// recheck has all pops look for items, because some may have come without a ring: there is a
// new connection, or a peer has begun to ring.
func (l *bell) recheck() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.queues) > 0 {
		l.mu.missed = true
		signal(l.work)
	}
}

// beat is called once per heartbeat. It ends the subscriptions to the bells of queues on which
// no pop has waited for a while, and has listen try again if it failed.
func (l *bell) beat() {
	l.mu.Lock()
	if l.mu.missed {
		signal(l.work)
	}

	var ended []*bellQueue
	for subject, q := range l.mu.idle {
		if q.beats++; q.beats > bellLife {
			delete(l.mu.idle, subject)
			delete(l.mu.queues, subject)
			ended = append(ended, q)
		}
	}

	if l.mu.waits && len(l.mu.queues) == 0 {
		l.mu.waits = false
		signal(l.helloNow)
	}
	l.mu.Unlock()

	// Without the lock, because NATS may block.
	for _, q := range ended {
		q.unsubscribe()
	}
}

// hear has pops look for the items of each ring until ctx ends.
func (l *bell) hear(ctx context.Context) {
	for {
		select {
		case m := <-l.rings:
			l.heard(m)
		case <-ctx.Done():
			return
		}
	}
}

func (l *bell) heard(m *nats.Msg) {
	from := string(m.Data)
	if from == l.p.config.Self.ID {
		return // the dispatcher knows
	}
	if err := subjects.ValidateQueueName(from); err != nil {
		l.p.config.Warn("another bridge rang the bell of a queue without its name",
			"subject", wire.Shorten(strings.TrimPrefix(m.Subject, l.root)))
		return
	}

	l.mu.Lock()
	q := l.mu.queues[m.Subject]
	l.mu.Unlock()
	if q != nil {
		l.p.config.Dispatcher.Wake(q.queue.Load())
	}
}
