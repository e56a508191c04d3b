package jetstream

import (
	"maps"
	"math"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// accounts records what the consumers have outstanding at this bridge: leases that were delivered.
// Each takes one of the credits that max_ack_pending allows its consumer. The credit is back once
// an acknowledgement arrives, at whichever bridge, or the lease ends.
//
// Credits only limit how far clients are ahead of their work. So it does no harm that a credit is
// back before the acknowledgement is durable, or that each bridge counts its own.
type accounts struct {
	*core
	mu         sync.Mutex // guards all of this, and pulls; held in calls of dispatcher and leaf
	byConsumer map[consumerKey]*account
	stopped    bool
}

const (
	// maxAccounts is how many accounts there are before idle ones go.
	maxAccounts = 4096
	// expiryPause is how often an account drops leases that have ended.
	expiryPause = time.Second
)

// account is what one consumer has outstanding.
type account struct {
	consumer  *consumer // the latest that this bridge knows
	credits   *dispatch.Credits
	leases    map[leaseKey]heldLease
	length    time.Duration // of the latest lease
	expiring  bool          // a call of freeExpired is planned
	pulls     int
	delivered uint64 // deliveries so far
}

// leaseKey names a delivery: no other has its fence.
type leaseKey struct {
	id    fdbpq.ID
	fence int64
}

func keyOf(t *fdbpq.Token) leaseKey { return leaseKey{t.ID, t.Fence} }

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
	if c.config.MaxAckPending > 0 {
		return c.config.MaxAckPending
	}
	return math.MaxInt32
}

// accountLocked returns the account of a consumer.
func (o *accounts) accountLocked(c *consumer) *account {
	a := o.byConsumer[c.key()]
	if a == nil {
		if len(o.byConsumer) >= maxAccounts {
			idle := func(_ consumerKey, a *account) bool { return a.pulls+len(a.leases) == 0 }
			maps.DeleteFunc(o.byConsumer, idle)
		}
		a = &account{
			consumer: c, credits: dispatch.NewCredits(c.maxOutstanding()),
			leases: map[leaseKey]heldLease{},
		}
		o.byConsumer[c.key()] = a
	}
	o.updateLocked(a, c)
	return a
}

// consumerChanged records what a consumer is now. Pulls that wait keep what they have asked for.
func (o *accounts) consumerChanged(c *consumer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.byConsumer[c.key()]; a != nil {
		o.updateLocked(a, c)
	}
}

func (o *accounts) updateLocked(a *account, c *consumer) {
	more := c.maxOutstanding() - a.consumer.maxOutstanding()
	a.consumer = c
	o.creditLocked(a, more)
}

// credit gives a consumer n credits.
func (o *accounts) credit(a *account, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.creditLocked(a, n)
}

func (o *accounts) creditLocked(a *account, n int) {
	q, err := o.queueOf(a.consumer.stream)
	if err == nil && n != 0 { // an error cannot be: the name was checked
		o.config.Dispatcher.AddCredits(q, a.credits, n)
	}
}

// hold records a delivery, and returns its number.
func (o *accounts) hold(a *account, lease *fdbpq.Lease) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()

	a.leases[keyOf(&lease.Token)] = heldLease{lease.Until, lease.Deliveries > 1}
	a.length = lease.Until.Sub(o.config.Now()) // for an extension
	if !a.expiring {
		a.expiring = true
		time.AfterFunc(expiryPause, func() { o.freeExpired(a) })
	}
	a.delivered++
	return a.delivered
}

// freeExpired drops the leases of an account that have ended, and plans the next call if any are
// left.
func (o *accounts) freeExpired(a *account) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.expireLocked(a)
	if a.expiring = len(a.leases) > 0 && !o.stopped; a.expiring {
		time.AfterFunc(expiryPause, func() { o.freeExpired(a) })
	}
}

func (o *accounts) expireLocked(a *account) {
	now, before := o.config.Now(), len(a.leases)
	ended := func(_ leaseKey, held heldLease) bool { return !held.until.After(now) }
	maps.DeleteFunc(a.leases, ended)
	o.creditLocked(a, before-len(a.leases))
}

// release ends a delivery of this bridge or, if extended, lets it last as long again. It ignores
// deliveries of other bridges.
func (o *accounts) release(k consumerKey, key leaseKey, extended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	a := o.byConsumer[k]
	if a == nil {
		return
	}

	held, ok := a.leases[key]
	switch {
	case !ok:
	case extended:
		held.until = o.config.Now().Add(a.length)
		a.leases[key] = held
	default:
		delete(a.leases, key)
		o.creditLocked(a, 1)
	}
}

// counts returns what a consumer has outstanding.
func (o *accounts) counts(k consumerKey) (c counts) {
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

	c.Delivered, c.AckPending, c.Waiting = a.delivered, len(a.leases), a.pulls
	return c
}
