package bridge

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// restorer gives back popped items that nobody received: it returns them to their old places
// in their queues. It tries until each is stored, with a pause after each failure, so that a
// store that refuses writes is not flooded. Meanwhile it keeps the dispatcher from ending.
type restorer struct {
	b *Bridge

	mu struct {
		sync.Mutex
		pauses map[*restoring]*time.Timer // the items that wait for their next attempt
		ended  bool
	}
}

// restoring is an item on its way back. It is the dispatch.Replier of its restores.
type restoring struct {
	restorer *restorer
	item     fdbpq.Item
	reason   reason
	bytes    int // that it takes in memory
	attempts int // that have failed
}

// reason is why nobody received an item.
type reason string

const (
	reasonGone       reason = "no_responders" // nobody was subscribed to the reply subject
	reasonDenied     reason = "denied"        // NATS does not permit the reply
	reasonUnsendable reason = "unsendable"    // the reply could not be handed to NATS
	reasonLate       reason = "late"          // the request had been answered, because the store took too long
)

var reasons = [...]reason{reasonGone, reasonDenied, reasonUnsendable, reasonLate}

// The pause after the first failure, and the longest.
const (
	firstRestorePause = 10 * time.Millisecond
	maxRestorePause   = time.Second
)

func newRestorer(b *Bridge) *restorer {
	s := &restorer{b: b}
	s.mu.pauses = map[*restoring]*time.Timer{}
	return s
}

// restore gives back a popped item.
func (s *restorer) restore(q *dispatch.Queue, item *fdbpq.Item, why reason) {
	i := &restoring{restorer: s, item: *item, reason: why, bytes: itemOverhead + itemSize(item)}
	s.b.dispatcher.Keep(i.bytes)
	r := dispatch.Request{Queue: q, Replier: i, Received: time.Now(), Size: len(item.Value) + headerSize(item.Headers)}
	i.requeue(&r, []fdbpq.Op{{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &i.item}})
}

// giveBackLate gives back an item that was taken for a request that had been answered. It is the GiveBack of
// the dispatcher's options.
func (b *Bridge) giveBackLate(q *dispatch.Queue, kind fdbpq.OpKind, result *fdbpq.Result) {
	if kind == fdbpq.OpLease {
		b.release(q, &result.Lease.Token, reasonLate)
		return
	}
	b.restorer.restore(q, &result.Item, reasonLate)
}

// Answer implements dispatch.Replier.
func (i *restoring) Answer(r *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	if err := results[0].Err; err != nil {
		i.lost(r, err)
		return
	}
	i.done()
}

func (i *restoring) done() {
	i.restorer.b.dispatcher.Keep(-i.bytes)
	i.restorer.b.metrics.givenBack[i.reason].Inc()
}

// Deliver is never called: an item that goes back does not wait.
func (i *restoring) Deliver(*dispatch.Request, []fdbpq.Op, []fdbpq.Result) (more bool) { return false }

// Heartbeat is never called.
func (i *restoring) Heartbeat(*dispatch.Request, int) {}

// Fail tries again after a pause. After an unknown outcome the dispatcher sees to the item.
func (i *restoring) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	s := i.restorer
	if errors.Is(err, ErrUnknownOutcome) || errors.Is(err, kv.ErrCommitUnknown) {
		i.done()
		return
	}
	again, op := *r, ops[0] // ops belongs to the dispatcher
	pause := min(firstRestorePause<<min(i.attempts, 10), maxRestorePause)
	i.attempts++
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		i.lost(r, err)
		return
	}
	s.b.dispatcher.Hold()
	s.mu.pauses[i] = time.AfterFunc(pause, func() {
		defer s.b.dispatcher.Release()
		s.mu.Lock()
		delete(s.mu.pauses, i)
		s.mu.Unlock()
		again.Received = time.Now()
		i.requeue(&again, []fdbpq.Op{op})
	})
}

func (i *restoring) requeue(r *dispatch.Request, ops []fdbpq.Op) {
	if err := i.restorer.b.dispatcher.Requeue(r, ops); err != nil {
		i.lost(r, err)
	}
}

// lost counts an item that is not put back.
func (i *restoring) lost(r *dispatch.Request, err error) {
	err = fmt.Errorf("an item of queue %s was popped, nobody received it, and it could not be put back: %w", r.Queue.Name, err)
	i.restorer.b.dispatcher.Keep(-i.bytes)
	i.restorer.b.metrics.lostItems.Inc()
	i.restorer.b.quiet.lost.warn("an item may be lost", "error", err)
}

// end gives up the items that wait for their next attempt. The dispatcher must have
// ended.
func (s *restorer) end() {
	s.mu.Lock()
	s.mu.ended = true
	abandoned := 0
	for _, timer := range s.mu.pauses {
		if timer.Stop() {
			abandoned++
		}
	}
	clear(s.mu.pauses)
	s.mu.Unlock()
	if abandoned > 0 {
		s.b.metrics.lostItems.Add(float64(abandoned))
		s.b.options.Logger.Error("items that nobody received could not be put back in time and are lost", "count", abandoned)
	}
}
