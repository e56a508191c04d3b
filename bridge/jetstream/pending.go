package jetstream

import (
	"container/list"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// outstanding is what the consumers have outstanding at this bridge: pulls, and leases that were
// delivered. A delivery takes one of the places that max_ack_pending allows its consumer. The place
// is free again once an acknowledgement arrives, at whichever bridge, or the lease is over.
//
// Places only bound how far clients are ahead of their work. So it does no harm that one is free
// before the acknowledgement is durable, or that each bridge counts its own.
type outstanding struct {
	mu       sync.Mutex // guards all of this, and pulls; dispatcher and connection may be called with it
	accounts map[consumerKey]*account
	most     int                       // accounts, before those that have nothing outstanding are forgotten
	inboxes  map[string]map[*pull]bool // the pulls that have not ended
	pulls    int
	stopped  atomic.Bool
	sweeping bool // endDeaf is planned
}

const (
	// maxAccounts is how many consumers are known before those that have nothing outstanding are
	// forgotten for the first time.
	maxAccounts = 4096
	// maxAtOnce is how many items a pull leases in one transaction.
	maxAtOnce = 512
	// The leases of a consumer are looked through each sixteenth of their length.
	expiryParts = 16
	minExpiry   = 100 * time.Millisecond
)

// account is what one consumer has outstanding.
type account struct {
	consumer  *consumer // as far as it is known
	leases    map[leaseKey]heldLease
	length    time.Duration // of the latest lease
	expiry    *time.Timer   // for freeExpired, nil if it is not planned
	pause     time.Duration // of that
	reserved  int           // places for what requests in the dispatcher may get
	pulls     int
	line      list.List // of *pull: those that wait for a place, the first first
	delivered uint64    // a running number
}

// leaseKey names a delivery: no other has its fence.
type leaseKey struct {
	id    fdbpq.ID
	fence int64
}

func keyOf(t *fdbpq.Token) leaseKey { return leaseKey{t.ID, t.Fence} }

// heldLease is a delivery that was not acknowledged.
type heldLease struct {
	until time.Time
	again bool // it was not the item's first
}

// counts is what CONSUMER.INFO shows of this bridge.
type counts struct {
	Delivered                        uint64
	AckPending, Redelivered, Waiting int
}

func newOutstanding() *outstanding {
	return &outstanding{most: maxAccounts, accounts: map[consumerKey]*account{}, inboxes: map[string]map[*pull]bool{}}
}

// accountLocked returns the account of a consumer.
func (o *outstanding) accountLocked(c *consumer) *account {
	a := o.accounts[c.key()]
	if a == nil {
		if len(o.accounts) >= o.most {
			maps.DeleteFunc(o.accounts, func(_ consumerKey, a *account) bool { return a.pulls == 0 && len(a.leases) == 0 })
			o.most = max(maxAccounts, 2*len(o.accounts)) // not again with each consumer if most are in use
		}
		a = &account{leases: map[leaseKey]heldLease{}}
		o.accounts[c.key()] = a
	}
	a.consumer = c
	return a
}

// removeLocked forgets a pull that has ended.
func (o *outstanding) removeLocked(p *pull) {
	p.account.pulls--
	o.pulls--
	if delete(o.inboxes[p.inbox], p); len(o.inboxes[p.inbox]) == 0 {
		delete(o.inboxes, p.inbox)
	}
}

// admitLocked has the first pulls of the line ask for items, while there are places.
func (a *account) admitLocked() {
	for first := a.line.Front(); first != nil; first = a.line.Front() {
		places := maxAtOnce
		if most := a.consumer.config.MaxAckPending; most > 0 {
			places = min(places, most-len(a.leases)-a.reserved)
		}
		if places <= 0 {
			return
		}
		first.Value.(*pull).askLocked(places)
	}
}

// holdLocked has a delivery take a place.
func (f *Face) holdLocked(a *account, lease *fdbpq.Lease) {
	a.leases[keyOf(&lease.Token)] = heldLease{lease.Until, lease.Deliveries > 1}
	a.length = lease.Until.Sub(f.config.Now())
	a.delivered++
	f.expireLocked(a)
}

// expireLocked plans to look for leases that are over, unless that is planned. Leases may be shorter
// than those before.
func (f *Face) expireLocked(a *account) {
	pause := max(a.length/expiryParts, minExpiry)
	switch {
	case a.expiry == nil:
		a.expiry, a.pause = time.AfterFunc(pause, func() { f.freeExpired(a) }), pause
	case pause < a.pause:
		a.expiry.Reset(pause)
		a.pause = pause
	}
}

// freeExpired frees the places of leases that are over.
func (f *Face) freeExpired(a *account) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	a.forgetLocked(f.config.Now())
	if a.expiry != nil {
		a.expiry.Stop() // it may have been planned anew meanwhile
		a.expiry = nil
	}
	if len(a.leases) > 0 && !f.pending.stopped.Load() {
		f.expireLocked(a)
	}
	a.admitLocked()
}

// forgetLocked forgets leases that are over.
func (a *account) forgetLocked(now time.Time) {
	maps.DeleteFunc(a.leases, func(_ leaseKey, held heldLease) bool { return !held.until.After(now) })
}

// settle frees the place of a delivery, or keeps it for as long again, if it was this bridge's.
func (f *Face) settle(k consumerKey, key leaseKey, extended bool) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	a := f.pending.accounts[k]
	if a == nil {
		return
	}

	held, ok := a.leases[key]
	switch {
	case !ok:
	case extended:
		held.until = f.config.Now().Add(a.length)
		a.leases[key] = held
	default:
		delete(a.leases, key)
		a.admitLocked()
	}
}

// purged frees the places of a queue's consumers, because its leases have ended.
func (f *Face) purged(s stream) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	for k, a := range f.pending.accounts {
		if k.stream == s {
			clear(a.leases)
			a.admitLocked()
		}
	}
}

// counts returns what a consumer has outstanding.
func (f *Face) counts(k consumerKey) (c counts) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	a := f.pending.accounts[k]
	if a == nil {
		return c
	}

	a.forgetLocked(f.config.Now())
	for _, held := range a.leases {
		if held.again {
			c.Redelivered++
		}
	}
	c.Delivered, c.AckPending, c.Waiting = a.delivered, len(a.leases), a.pulls
	return c
}

// busy reports whether acknowledgements are to be answered, or pulls to end because the bridge stops.
func (f *Face) busy() bool {
	f.acks.mu.Lock()
	acks := f.acks.waiting
	f.acks.mu.Unlock()
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	return acks > 0 || f.pending.stopped.Load() && f.pending.pulls > 0
}
