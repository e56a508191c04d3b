package bridge

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

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// router lets one bridge pop from a queue at a time. Where several bridges
// share a store, pops of one queue by two of them conflict, and one of the two
// transactions was done in vain. So the bridges tell each other over NATS who
// is there, agree by hashing on one of them for each queue, and hand it the
// pops that NATS gave to others. The message is passed on as it is, reply
// subject included, so the answer goes straight to the client.
//
// Nothing depends on the bridges having the same view of who is there: if two of
// them pop from a queue, their transactions conflict and are tried again, as
// ever.
//
// A bridge that dies takes with it what it was handed. Those who handed it over
// notice when it has not been heard for heartbeatLife, and answer 503 to what
// they handed it since they last heard it: the pops may have been done, as far
// as they know. A bridge that ends in an orderly way says so before.
//
// An engine with one writer has one bridge, and no router.
type router struct {
	b       *Bridge
	inbox   string        // what others hand to this bridge has subjects below it
	members string        // subject on which bridges say that they are there
	hello   chan struct{} // somebody new wants to hear of us
	direct  *direct       // keeps pops from coming to others first
	denied  atomic.Bool   // NATS does not let this bridge talk to others

	bridges atomic.Pointer[[]string] // ids of those there, this one included, sorted

	mu struct {
		sync.Mutex
		heard  map[string]time.Time // other bridges and when they were heard last
		handed map[string][]request // what each was handed since
	}
}

const (
	// heartbeat is how often a bridge says that it is there.
	heartbeat = 250 * time.Millisecond
	// heartbeatLife is how long it is believed.
	heartbeatLife = 5 * heartbeat
	// linger is how long a bridge that said that it leaves still takes what is
	// handed to it, because others have not heard it yet.
	linger = 100 * time.Millisecond
	// leaving comes before the id of a bridge that ends.
	leaving = "-"
)

func newRouter(b *Bridge) *router {
	root := internalRoot + b.grammar.Wildcards()[0]
	root = strings.TrimSuffix(root, ".>")
	r := &router{
		b:       b,
		inbox:   root + ".to." + b.id + ".",
		members: root + ".members." + b.options.QueueGroup,
		hello:   make(chan struct{}, 1),
		direct:  newDirect(b),
	}
	r.mu.heard = map[string]time.Time{}
	r.mu.handed = map[string][]request{}
	r.bridges.Store(&[]string{b.id})
	return r
}

// internalRoot is what the subjects between bridges begin with.
const internalRoot = "_pqbridge."

// subscribe makes the router's subscriptions and returns them.
func (r *router) subscribe() ([]*nats.Subscription, error) {
	members, err := r.b.nc.Subscribe(r.members, r.hear)
	if err != nil {
		return nil, err
	}
	h := newHandler(r.b)
	h.handed = true
	handed, err := r.b.nc.Subscribe(r.inbox+">", func(m *nats.Msg) {
		m.Subject = m.Subject[len(r.inbox):]
		h.handle(m)
	})
	return []*nats.Subscription{members, handed}, err
}

// run says that this bridge is there until ctx ends, then that it is not.
func (r *router) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		if !r.denied.Load() {
			r.say(r.b.id)
		}
		select {
		case <-ctx.Done():
			r.say(leaving + r.b.id)
			return
		case <-r.hello:
		case <-ticker.C:
			r.forget(time.Now().Add(-heartbeatLife))
		}
	}
}

// startRouter starts the router, if there is one and it was connected.
func (b *Bridge) startRouter(running *running, err error) {
	running.leave = func() {}
	if b.router == nil || err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { b.router.run(ctx) })
	done.Go(func() { b.router.direct.run(ctx, b.router.together) })
	running.leave = func() {
		cancel()
		done.Wait()
		if len(*b.router.bridges.Load()) > 1 {
			time.Sleep(linger)
		}
	}
}

// say tells the others. While NATS is away there is nobody to tell, and what
// is buffered for later is harmless.
func (r *router) say(id string) {
	if err := r.b.nc.Publish(r.members, []byte(id)); err != nil {
		r.b.quiet.nats.warn("the other bridges could not be told that this one is there", "error", err)
	}
}

// hear takes what a bridge says of itself.
func (r *router) hear(m *nats.Msg) {
	id := string(m.Data)
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone, left := strings.CutPrefix(id, leaving); left {
		delete(r.mu.heard, gone)
		delete(r.mu.handed, gone) // it still answers
		r.publishLocked()
		return
	}
	if id == r.b.id || subjects.ValidateQueueName(id) != nil {
		return
	}
	_, known := r.mu.heard[id]
	r.mu.heard[id] = time.Now()
	delete(r.mu.handed, id)
	if known {
		return
	}
	r.publishLocked()
	select {
	case r.hello <- struct{}{}:
	default:
	}
}

// deny makes this bridge one among strangers until it connects again: it
// hands nothing over, and the others soon hand nothing to it.
func (r *router) deny() {
	r.denied.Store(true)
	r.b.quiet.nats.warn("NATS does not let the bridges talk to each other: allow this user to publish and subscribe to " +
		internalRoot + ">, or pops of one queue by several bridges will conflict")
}

// forget removes those that were not heard since, and answers what they were
// handed.
func (r *router) forget(since time.Time) {
	lost := r.takeLost(since)
	for i := range lost {
		r.b.refuse(&lost[i], fmt.Errorf("%w: the bridge that pops from this queue is gone, the pop may or may not have been done", kv.ErrCommitUnknown))
	}
}

func (r *router) takeLost(since time.Time) (lost []request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.mu.heard)
	for id, heard := range r.mu.heard {
		if heard.Before(since) {
			lost = append(lost, r.mu.handed[id]...)
			delete(r.mu.heard, id)
			delete(r.mu.handed, id)
		}
	}
	if len(r.mu.heard) != before {
		r.publishLocked()
	}
	return lost
}

func (r *router) publishLocked() {
	ids := []string{r.b.id}
	for id := range r.mu.heard {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	r.bridges.Store(&ids)
	r.b.options.Logger.Info("bridges that share the queues", "count", len(ids))
}

// together is the number of bridges that share the queues as agreed.
func (r *router) together() int {
	if r.denied.Load() {
		return 1
	}
	return len(*r.bridges.Load())
}

// pass hands a pop to the bridge that pops from the queue, if that is another
// one, and says whether it did.
func (r *router) pass(m *nats.Msg, request *request) (passed bool, err error) {
	if r.together() == 1 || r.b.stopping.Load() {
		return false, nil
	}
	owner := request.queue.owner(*r.bridges.Load())
	if owner == r.b.id {
		return false, nil
	}
	if passed, err := r.noteHanded(owner, request); !passed || err != nil {
		return false, err
	}
	r.b.metrics.passed.Inc()
	subject := r.inbox[:len(r.inbox)-len(r.b.id)-1] + owner + "." + m.Subject
	return true, r.b.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: m.Reply, Header: m.Header})
}

// noteHanded remembers a request for the case that its new owner is gone. It
// returns false if that is known already, and ErrOverloaded if too many are
// remembered.
func (r *router) noteHanded(owner string, request *request) (there bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.mu.heard[owner]; !there {
		return false, nil
	}
	handed := r.mu.handed[owner]
	if len(handed) >= r.b.options.MaxPending {
		return true, fmt.Errorf("%w: %d pops are with the bridge that pops from this queue: try again later", ErrOverloaded, len(handed))
	}
	r.mu.handed[owner] = append(handed, *request)
	return true, nil
}

// owner is the bridge that pops from the queue: the one whose id and the
// queue's name have the highest hash, so that when a bridge comes or goes only
// its own queues move.
func (q *queue) owner(ids []string) string {
	if last := q.owned.Load(); last != nil && last.of == &ids[0] {
		return last.id
	}
	now := &ownership{of: &ids[0]}
	var highest uint64
	for _, id := range ids {
		if h := xxhash.Sum64String(id + " " + q.kind.String() + " " + q.name); h >= highest {
			highest, now.id = h, id
		}
	}
	q.owned.Store(now)
	return now.id
}
