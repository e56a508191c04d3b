package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// moveRoom is the room of a transaction for items that it moves (leases, requeues, buries or
// evicts) and for expired ones that it removes.
type moveRoom struct {
	opBytes      int  // what the operations add themselves: see bytesOf
	maxBytes     int  // what may move if the operations add nothing
	leftBytes    int  // what may still move, once something has
	moves        int  // so far
	broughtBack  bool // something that was due
	full         bool // a large item had no room: do not read others to find out whether they fit
	expiredBytes int  // about what it takes to remove the expired items so far
}

// remaining is how many bytes may still be moved, since a transaction must not grow too large.
func (r *moveRoom) remaining() int {
	if r.moves == 0 {
		return r.maxBytes - r.opBytes
	}
	return r.leftBytes
}

// fits reports whether the transaction has room to move that many bytes, and if so, charges them.
func (r *moveRoom) fits(size int) bool {
	switch {
	case r.moves == 0:
		// The value of the first item always fits, and so does a whole item alone.
		r.leftBytes = r.remaining()
		if size > codec.ChunkSize && size > r.leftBytes+state.RoomAlone {
			return false
		}
	case size > r.leftBytes:
		return false
	}

	r.moves++
	r.leftBytes -= size
	return true
}

// charge takes away room that moves no longer have.
func (r *moveRoom) charge(size int) {
	r.maxBytes, r.leftBytes = r.maxBytes-size, r.leftBytes-size
}

// forExpired is about how many bytes may still go into removing expired items: some beside
// everything else, and more if that leaves room.
func (r *moveRoom) forExpired() int {
	most := due.ExpiredBytes + max(r.remaining(), 0)
	if over := r.expiredBytes - due.ExpiredBytes; over > 0 {
		most += over // which chargeExpired has charged to the rest
	}
	return min(most, due.MostExpiredBytes) - r.expiredBytes
}

// chargeExpired takes away room for the removal of expired items.
func (r *moveRoom) chargeExpired(size int) {
	before := max(r.expiredBytes-due.ExpiredBytes, 0)
	r.expiredBytes += size
	r.charge(max(r.expiredBytes-due.ExpiredBytes, 0) - before)
}

// bringBack does the due work of queues, as far as there is room beside the operations.
func (r *moveRoom) bringBack(queues []*due.Due) error {
	found, err := due.Find(queues)
	if found == nil {
		return err
	}

	room := due.Room{
		Bytes:   min(due.HeldBytes+max(r.remaining(), 0), due.MostHeldBytes),
		Expired: r.forExpired(),
	}
	if r.moves == 0 && !r.broughtBack {
		room.Fits = r.fits // a large item has room while it is the only one that moves
	}

	before := room
	err = found.BringBack(&room)
	r.chargeExpired(before.Expired - room.Expired)

	// HeldBytes are free; what exceeds them is room that leases do not have any more.
	if over := before.Bytes - room.Bytes - due.HeldBytes; over > 0 {
		r.charge(over)
	}
	done := func(d *due.Due) bool { return d.Done }
	r.broughtBack = r.broughtBack || slices.ContainsFunc(queues, done)
	return err
}
