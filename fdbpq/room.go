package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// refuse is for operations that are not tried, because there was no room for others.
func refuse(results []Result, indexes []int) {
	for _, i := range indexes {
		results[i].Err = state.ErrNoRoom
	}
}

// bytesOf returns about how many bytes of a transaction the operations take, apart from items that they move.
func bytesOf(ops []Op) (n int) {
	const popped = 16 // keys that a pop removes, or that are in its conflict ranges
	for i := range ops {
		n += state.RestoreOverhead
		l := ops[i].Queue.Layout()
		switch ops[i].Kind {
		case OpPush:
			n += ops[i].Message.Size() + l.DedupSize(&ops[i].Message)
		case OpRestore:
			if item := ops[i].Item; item != nil {
				n += item.Size() + l.DedupSize(&item.Message)
			}
		case OpPop, OpLease:
			n += popped * len(l.Prefix)
		}
	}
	return n
}

// roomLeft is how many bytes may still be moved, since a transaction must not grow too large.
func (t *txOps) roomLeft() int {
	if t.moves == 0 {
		return t.allRoom - t.opsBytes
	}
	return t.room
}

// expiredRoom is about how many bytes may still go into removing expired items: some beside whatever else there is,
// and more if that leaves room.
func (t *txOps) expiredRoom() int {
	most := due.ExpiredBytes + max(t.roomLeft(), 0)
	if over := t.expiredBytes - due.ExpiredBytes; over > 0 {
		most += over // which takeExpired has taken from the rest
	}
	return min(most, due.MostExpiredBytes) - t.expiredBytes
}

// takeExpired takes room to remove expired items. Leases have what is left.
func (t *txOps) takeExpired(size int) {
	before := max(t.expiredBytes-due.ExpiredBytes, 0)
	t.expiredBytes += size
	over := max(t.expiredBytes-due.ExpiredBytes, 0) - before
	t.allRoom, t.room = t.allRoom-over, t.room-over
}

// fits reports whether the transaction has room to move that many bytes, and takes the room. The
// value of the first item always fits, and so does a whole item alone.
func (t *txOps) fits(size int) bool {
	switch {
	case t.moves == 0:
		t.room = t.roomLeft()
		if size > codec.ChunkSize && size > t.room+state.RoomAlone {
			return false
		}
	case size > t.room:
		return false
	}
	t.moves++
	t.room -= size
	return true
}
