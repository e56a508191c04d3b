package outbox

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
