package jetstream

import (
	"cmp"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// outstanding records what the consumers have outstanding at this bridge: delivered leases.
// Each takes one of the credits that max_ack_pending allows its consumer. The credit is back once
// an acknowledgement arrives, at whichever bridge, or the lease ends.
//
// Credits only limit how far clients are ahead of their work. So it does no harm that a credit is
// back before the acknowledgement is durable, or that each bridge counts its own.
type outstanding struct {
	*core
	mu         sync.Mutex // guards all of this, and pulls; held in calls of dispatcher and leaf
	byConsumer map[consumerKey]*ackPending
	stopped    bool
}

const (
	// maxAckPendings is how many ackPendings there are before idle ones go.
	maxAckPendings = 4096
	// expiryPause is how often an ackPending drops leases that have ended.
	expiryPause = time.Second
)

// ackPending is what one consumer has outstanding.
type ackPending struct {
	consumer  *consumer // the latest that this bridge knows
	credits   *dispatch.Credits
	leases    map[fdbpq.Token]heldLease
	length    time.Duration // of the latest lease
	expiring  bool          // a call of freeExpired is planned
	waiting   int           // pulls that have not ended
	delivered uint64        // deliveries so far
}

// heldLease is a delivery that was not acknowledged.
type heldLease struct {
	until       time.Time
	redelivered bool // it was not the first of its item
}

// counts is what CONSUMER.INFO shows of this bridge.
type counts struct {
	Delivered                        uint64
	AckPending, Redelivered, Waiting int
}

// maxOutstanding is how many credits the consumer has.
func (c *consumer) maxOutstanding() int {
	return cmp.Or(max(c.config.MaxAckPending, 0), math.MaxInt32)
}

// ackPendingLocked returns the ackPending of a consumer.
func (o *outstanding) ackPendingLocked(c *consumer) *ackPending {
	a := o.byConsumer[c.consumerKey]
	if a == nil {
		if len(o.byConsumer) >= maxAckPendings {
			idle := func(_ consumerKey, a *ackPending) bool { return a.waiting+len(a.leases) == 0 }
			maps.DeleteFunc(o.byConsumer, idle)
		}
		a = &ackPending{
			consumer: c, credits: dispatch.NewCredits(c.maxOutstanding()),
			leases: map[fdbpq.Token]heldLease{},
		}
		o.byConsumer[c.consumerKey] = a
	}
	o.updateLocked(a, c)
	return a
}

// consumerChanged records what a consumer is now. Pulls that wait keep what they have asked for.
func (o *outstanding) consumerChanged(c *consumer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.byConsumer[c.consumerKey]; a != nil {
		o.updateLocked(a, c)
	}
}

func (o *outstanding) updateLocked(a *ackPending, c *consumer) {
	more := c.maxOutstanding() - a.consumer.maxOutstanding()
	a.consumer = c
	o.creditLocked(a, more)
}

// credit gives a consumer n credits.
func (o *outstanding) credit(a *ackPending, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.creditLocked(a, n)
}

func (o *outstanding) creditLocked(a *ackPending, n int) {
	q, err := o.queueOf(a.consumer.stream)
	if err == nil && n != 0 { // an error cannot be: the name was checked
		o.config.Dispatcher.AddCredits(q, a.credits, n)
	}
}

// hold records a delivery, and returns its number.
func (o *outstanding) hold(a *ackPending, lease *fdbpq.Lease) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()

	a.leases[lease.Token] = heldLease{lease.Until, lease.Deliveries > 1}
	a.length = lease.Until.Sub(o.config.Now()) // for an extension
	if !a.expiring {
		a.expiring = true
		time.AfterFunc(expiryPause, func() { o.freeExpired(a) })
	}
	a.delivered++
	return a.delivered
}

// freeExpired drops the leases of an ackPending that have ended, and plans the next call if any are
// left.
func (o *outstanding) freeExpired(a *ackPending) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.expireLocked(a)
	if a.expiring = len(a.leases) > 0 && !o.stopped; a.expiring {
		time.AfterFunc(expiryPause, func() { o.freeExpired(a) })
	}
}

func (o *outstanding) expireLocked(a *ackPending) {
	now, before := o.config.Now(), len(a.leases)
	ended := func(_ fdbpq.Token, held heldLease) bool { return !held.until.After(now) }
	maps.DeleteFunc(a.leases, ended)
	o.creditLocked(a, before-len(a.leases))
}

// release ends a delivery of this bridge or, if extended, lets it last as long again. It ignores
// deliveries of other bridges.
func (o *outstanding) release(k consumerKey, token fdbpq.Token, extended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	a := o.byConsumer[k]
	if a == nil {
		return
	}

	held, ok := a.leases[token]
	switch {
	case !ok:
	case extended:
		held.until = o.config.Now().Add(a.length).Round(0) // the clock may be set
		a.leases[token] = held
	default:
		delete(a.leases, token)
		o.creditLocked(a, 1)
	}
}

// counts returns what a consumer has outstanding.
func (o *outstanding) counts(k consumerKey) (c counts) {
	o.mu.Lock()
	defer o.mu.Unlock()

	a := o.byConsumer[k]
	if a == nil {
		return c
	}

	o.expireLocked(a)
	for _, held := range a.leases {
		if held.redelivered {
			c.Redelivered++
		}
	}

	c.Delivered, c.AckPending, c.Waiting = a.delivered, len(a.leases), a.waiting
	return c
}
