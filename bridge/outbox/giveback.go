package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Return gives back what a pop or lease took and nobody received. Other operations took nothing.
func (o *Outbox) Return(q *dispatch.Queue, kind fdbpq.OpKind, result *fdbpq.Result, why Reason) {
	switch kind {
	case fdbpq.OpPop:
		o.restore(q, &result.Item, why)
	case fdbpq.OpLease:
		o.release(q, &result.Lease.Token, why)
	}
}

// ReturnAll returns the items of a reply that was not received, if it has any.
func (o *Outbox) ReturnAll(c *Content, why Reason) {
	if c.Relayed != "" {
		o.config.Tell(string(why), c.Relayed)
		return
	}

	// First, or it would get the item again.
	o.config.Dispatcher.Cancel(c.Waits)

	for i := range c.Popped {
		o.restore(c.Queue, &c.Popped[i], why)
	}

	for i := range c.Leased {
		o.release(c.Queue, &c.Leased[i].Token, why)
	}
}

// release ends the lease of an item that nobody received, and does not count the delivery. It does
// nothing if the token does not hold any more. It tries once; if that fails, the lease runs out.
func (o *Outbox) release(q *dispatch.Queue, token *fdbpq.Token, why Reason) {
	answer := &releasing{&o.config, why}
	r := dispatch.Request{Queue: q, Replier: answer, Received: time.Now(), Size: itemOverhead}
	op := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q.Target, Token: *token, Uncounted: true}
	_ = o.config.Dispatcher.Requeue(&r, []fdbpq.Op{op}) // only once the bridge has ended
}

// releasing is the dispatch.Replier of a release.
type releasing struct {
	config *Config
	reason Reason
}

// Answer implements dispatch.Replier.
func (r *releasing) Answer(_ *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	if results[0].Err == nil {
		r.config.Returned(r.reason)
	}
}

// Fail leaves the lease to run out.
func (r *releasing) Fail(*dispatch.Request, []fdbpq.Op, error) {}

// restore returns a popped item that nobody received to its old place in its queue.
func (o *Outbox) restore(q *dispatch.Queue, item *fdbpq.Item, why Reason) {
	i := &restoring{o: o, item: *item, reason: why, bytes: itemOverhead + itemSize(item)}
	o.config.Dispatcher.AddUnconfirmed(q, i.bytes)

	size := len(item.Value) + wire.HeaderSize(item.Headers)
	r := dispatch.Request{Queue: q, Replier: i, Received: time.Now(), Size: size}
	i.submit(&r, fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &i.item})
}

// restoring is a popped item on its way back. It is the dispatch.Replier of its restores. It tries
// until one is stored, with a pause after each failure, so that a store that refuses writes is not
// flooded. Meanwhile it keeps the dispatcher from ending.
type restoring struct {
	o        *Outbox
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
	i.o.config.Dispatcher.AddUnconfirmed(r.Queue, -i.bytes)
	i.o.config.Returned(i.reason)
}

// Fail tries again after a pause. After an unknown outcome the dispatcher sees to the item.
func (i *restoring) Fail(r *dispatch.Request, ops []fdbpq.Op, err error) {
	if errors.Is(err, dispatch.ErrUnknownOutcome) {
		i.done(r)
		return
	}

	// Copies, because both belong to the dispatcher.
	again, op := *r, ops[0]
	pause := min(firstRestorePause<<min(i.attempts, 10), maxRestorePause)
	i.attempts++

	o := i.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.pauses == nil {
		i.lost(r, err)
		return
	}

	o.config.Dispatcher.Hold()
	o.mu.pauses[i] = time.AfterFunc(pause, func() {
		defer o.config.Dispatcher.Release()
		o.mu.Lock()
		delete(o.mu.pauses, i)
		o.mu.Unlock()
		again.Received = time.Now()
		i.submit(&again, op)
	})
}

func (i *restoring) submit(r *dispatch.Request, op fdbpq.Op) {
	if err := i.o.config.Dispatcher.Requeue(r, []fdbpq.Op{op}); err != nil {
		i.lost(r, err)
	}
}

// lost counts an item that is not put back.
func (i *restoring) lost(r *dispatch.Request, err error) {
	err = fmt.Errorf("an item of queue %s was popped, nobody received it, and it could not be put "+
		"back: %w", r.Queue.Name, err)

	i.o.config.Dispatcher.AddUnconfirmed(r.Queue, -i.bytes)
	i.o.config.Lost(1)
	i.o.config.WarnLost("an item may be lost", "error", err)
}

// EndRestores abandons the items that wait for their next attempt. The dispatcher must have
// ended.
func (o *Outbox) EndRestores() {
	abandoned := 0
	o.mu.Lock()
	for _, timer := range o.mu.pauses {
		if timer.Stop() {
			abandoned++
		}
	}

	o.mu.pauses = nil
	o.mu.Unlock()

	if abandoned > 0 {
		o.config.Lost(abandoned)
		o.config.Logger.Error("items are lost: nobody received them, and time was too short to "+
			"put them back", "count", abandoned)
	}
}
