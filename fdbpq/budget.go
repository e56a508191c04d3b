package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// moveBudget is the budget of a transaction for items that it moves (leases, requeues, buries or
// evicts) and for expired ones that it removes.
type moveBudget struct {
	opBytes      int  // what the operations add themselves: see bytesOf
	most         int  // what a transaction of its own may move
	maxBytes     int  // what may move if the operations add nothing
	leftBytes    int  // what may still move, once something has
	moves        int  // so far
	broughtBack  bool // something that was due
	full         bool // a large item had no room: do not read others to find out whether they fit
	expiredBytes int  // about what it takes to remove the expired items so far
}

// remaining is how many bytes may still be moved, since a transaction must not grow too large.
func (b *moveBudget) remaining() int {
	if b.moves == 0 {
		return b.maxBytes - b.opBytes
	}
	return b.leftBytes
}

// fits reports whether the transaction has room to move that many bytes, and if so, charges them.
func (b *moveBudget) fits(size int) bool {
	switch {
	case b.moves == 0:
		// The value of the first item always fits, and so does a whole item alone.
		b.leftBytes = b.remaining()
		if size > codec.ChunkSize && size > b.leftBytes+state.ExtraForFirst {
			return false
		}
	case size > b.leftBytes:
		return false
	}

	b.moves++
	b.leftBytes -= size
	return true
}

// forget charges what it takes to remove the attempts of items, which is 0 for most. The error is
// ErrNoRoom.
func (b *moveBudget) forget(size int) error {
	if size > 0 && !b.fits(size) {
		return state.ErrNoRoom
	}
	return nil
}

// charge takes away budget that moves no longer have.
func (b *moveBudget) charge(size int) {
	b.maxBytes, b.leftBytes = b.maxBytes-size, b.leftBytes-size
}

// forExpired is about how many bytes may still go into removing expired items: some beside
// everything else, and more if that leaves room.
func (b *moveBudget) forExpired() int {
	charged := max(b.expiredBytes-due.ExpiredBytes, 0) // by bringBack
	most := due.ExpiredBytes + charged + max(b.remaining(), 0)
	return min(most, due.MostExpiredBytes) - b.expiredBytes
}

// bringBack does the due work of queues, as far as there is room beside the operations.
func (b *moveBudget) bringBack(queues []*due.Due) error {
	found, err := due.Find(queues)
	if found == nil {
		return err
	}

	budget := due.Budget{
		Bytes:   min(due.HeldBytes+max(b.remaining(), 0), due.MostHeldBytes),
		Expired: b.forExpired(),
	}
	if b.moves == 0 && !b.broughtBack {
		budget.Fits = b.fits // a large item has room while it is the only one that moves
	}

	before := budget
	err = found.BringBack(&budget)

	// ExpiredBytes and HeldBytes are free; what exceeds them is budget that leases no longer have.
	charged := max(b.expiredBytes-due.ExpiredBytes, 0)
	b.expiredBytes += before.Expired - budget.Expired
	b.charge(max(b.expiredBytes-due.ExpiredBytes, 0) - charged)
	b.charge(max(before.Bytes-budget.Bytes-due.HeldBytes, 0))
	done := func(d *due.Due) bool { return d.Done }
	b.broughtBack = b.broughtBack || slices.ContainsFunc(queues, done)
	return err
}
