package outbox

import (
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
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
