package bridge

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// restorer pushes popped items again whose replies NATS did not accept. It tries until
// each is stored, with a pause after each failure, so that a store that refuses
// writes is not flooded. Meanwhile it keeps the dispatcher from ending.
type restorer struct {
	b *Bridge

	mu struct {
		sync.Mutex
		pauses map[*restoring]*time.Timer // the items that wait for their next attempt
		ended  bool
	}
}

// restoring is an item on its way back. It is the dispatch.Replier of its pushes.
type restoring struct {
	restorer *restorer
	endpoint *endpoint
	attempts int // that have failed
}

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

// restore pushes a popped item again because NATS did not accept its reply: the
// connection has been down for too long, or the server cannot carry the reply or does
// not permit it. The item goes behind the others of its priority.
func (s *restorer) restore(q *dispatch.Queue, item *fdbpq.Item) {
	push := subjects.Push
	if q.Kind == subjects.FIFO {
		push = subjects.Enqueue
	}
	i := &restoring{restorer: s, endpoint: s.b.endpoints.of(&subjects.Request{Kind: q.Kind, Verb: push})}
	r := dispatch.Request{Queue: q, Replier: i, Received: time.Now(), Size: len(item.Value) + headerSize(item.Headers)}
	op := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q.Target, Priority: item.ID.Priority, Message: item.Message}
	i.requeue(&r, []fdbpq.Op{op})
}

// Answer counts the push like one of a client.
func (i *restoring) Answer(r *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	if err := results[0].Err; err != nil {
		i.lost(r, err)
		return
	}
	i.endpoint.done(r, nil)
}

// Fail tries again after a pause, unless the item may have been stored already.
func (i *restoring) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	s := i.restorer
	if errors.Is(err, ErrUnknownOutcome) || errors.Is(err, kv.ErrCommitUnknown) {
		i.lost(r, err)
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
		r.Answered = time.Now()
		i.lost(r, err)
	}
}

// lost counts an item that is not put back, or may not have been.
func (i *restoring) lost(r *dispatch.Request, err error) {
	err = fmt.Errorf("an item of queue %s was popped for a reply that NATS did not accept, and could not be put back: %w", r.Queue.Name, err)
	i.endpoint.done(r, failureOf(err))
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
		s.b.options.Logger.Error("items whose replies NATS did not accept could not be put back in time and are lost", "count", abandoned)
	}
}
