package outbox

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// restorer gives back popped items that nobody received: it returns them to their old places
// in their queues. It tries until each is stored, with a pause after each failure, so that a
// store that refuses writes is not flooded. Meanwhile it keeps the dispatcher from ending.
type restorer struct {
	config *Config

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
	reason   Reason
	bytes    int // that it takes in memory
	attempts int // that have failed
}

// The pause after the first failure, and the longest.
const (
	firstRestorePause = 10 * time.Millisecond
	maxRestorePause   = time.Second
)

// Restore returns a popped item that nobody received to its old place in its queue.
func (o *Outbox) Restore(q *dispatch.Queue, item *fdbpq.Item, why Reason) {
	i := &restoring{restorer: &o.restorer, item: *item, reason: why, bytes: itemOverhead + itemSize(item)}
	o.config.Dispatcher.Keep(q, i.bytes)

	r := dispatch.Request{Queue: q, Replier: i, Received: time.Now(), Size: len(item.Value) + wire.HeaderSize(item.Headers)}
	i.submit(&r, []fdbpq.Op{{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &i.item}})
}

// RequeueLate returns an item that was taken for a request that had been answered.
func (o *Outbox) RequeueLate(q *dispatch.Queue, kind fdbpq.OpKind, result *fdbpq.Result) {
	if kind == fdbpq.OpLease {
		o.Release(q, &result.Lease.Token, Late)
		return
	}
	o.Restore(q, &result.Item, Late)
}

// requeue returns the items of a reply that was not received, if it has any.
func (o *Outbox) requeue(c *Content, why Reason) {
	// A request that waits for more ends first: else it would get the item again.
	o.config.Dispatcher.Cancel(c.Waits)

	switch {
	case len(c.Popped)+len(c.Leased) > 0:
		for i := range c.Popped {
			o.Restore(c.Queue, &c.Popped[i], why)
		}
		for i := range c.Leased {
			o.Release(c.Queue, &c.Leased[i].Token, why)
		}
	case c.Lease != nil:
		o.Release(c.Queue, c.Lease, why)
	case c.Queue != nil:
		o.Restore(c.Queue, &c.Item, why)
	}
}

// Answer implements dispatch.Replier.
func (i *restoring) Answer(r *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	if err := results[0].Err; err != nil {
		i.lost(r, err)
		return
	}
	i.done(r)
}

func (i *restoring) done(r *dispatch.Request) {
	i.restorer.config.Dispatcher.Keep(r.Queue, -i.bytes)
	i.restorer.config.Returned(i.reason)
}

// Fail tries again after a pause. After an unknown outcome the dispatcher sees to the item.
func (i *restoring) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	s := i.restorer
	if errors.Is(err, dispatch.ErrUnknownOutcome) || errors.Is(err, kv.ErrCommitUnknown) {
		i.done(r)
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

	s.config.Dispatcher.Hold()
	s.mu.pauses[i] = time.AfterFunc(pause, func() {
		defer s.config.Dispatcher.Release()
		s.mu.Lock()
		delete(s.mu.pauses, i)
		s.mu.Unlock()
		again.Received = time.Now()
		i.submit(&again, []fdbpq.Op{op})
	})
}

func (i *restoring) submit(r *dispatch.Request, ops []fdbpq.Op) {
	if err := i.restorer.config.Dispatcher.Requeue(r, ops); err != nil {
		i.lost(r, err)
	}
}

// lost counts an item that is not put back.
func (i *restoring) lost(r *dispatch.Request, err error) {
	err = fmt.Errorf("an item of queue %s was popped, nobody received it, and it could not be put back: %w",
		r.Queue.Name, err)

	i.restorer.config.Dispatcher.Keep(r.Queue, -i.bytes)
	i.restorer.config.Lost(1)
	i.restorer.config.WarnLost("an item may be lost", "error", err)
}

// EndRestores abandons the items that wait for their next attempt. The dispatcher must have
// ended.
func (o *Outbox) EndRestores() {
	s := &o.restorer

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
		s.config.Lost(abandoned)
		s.config.Logger.Error("items that nobody received could not be put back in time and are lost", "count", abandoned)
	}
}
