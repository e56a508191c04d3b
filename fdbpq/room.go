package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// moveRoom is the room of a transaction for items that it moves (leases, requeues, buries or evicts) and
// for expired ones that it removes.
type moveRoom struct {
	beside  int  // bytes that the operations add themselves
	most    int  // bytes that may move if the operations add nothing
	left    int  // bytes that may still move, once something has
	moves   int  // so far
	full    bool // a large item had no room, so no more of them are read to find out whether they have
	expired int  // bytes that removing expired items takes, about
}

// bytesOf returns about how many bytes of a transaction the operations take, apart from items that they
// move.
func bytesOf(ops []Op) (n int) {
	const popped = 16 // keys that a pop removes, or that are in its conflict ranges
	for i := range ops {
		n += state.RestoreOverhead
		l := ops[i].Queue.Layout()
		switch ops[i].Kind {
		case OpPush:
			n += ops[i].Message.Size() + l.DedupSize(&ops[i].Message)
			if ops[i].Message.Group() != "" {
				n += l.GroupSize()
			}
		case OpRestore:
			if item := ops[i].Item; item != nil {
				n += item.Size() + l.DedupSize(&item.Message)
			}
		case OpSetSource:
			for _, m := range ops[i].Dead {
				n += m.Size() + codec.DeadLetterSize
			}
		case OpSetConsumer, OpSetSchedule:
			kind, _ := ops[i].Kind.recordKind()
			n += codec.MaxRecordName + kind.MaxValue()
		case OpPop, OpLease:
			n += popped * len(l.Prefix)
		}
	}
	return n
}

// remaining is how many bytes may still be moved, since a transaction must not grow too large.
func (r *moveRoom) remaining() int {
	if r.moves == 0 {
		return r.most - r.beside
	}
	return r.left
}

// fits reports whether the transaction has room to move that many bytes, and takes the room. The
// value of the first item always fits, and so does a whole item alone.
func (r *moveRoom) fits(size int) bool {
	switch {
	case r.moves == 0:
		r.left = r.remaining()
		if size > codec.ChunkSize && size > r.left+state.RoomAlone {
			return false
		}
	case size > r.left:
		return false
	}

	r.moves++
	r.left -= size
	return true
}

// take takes room that leases do not have any more.
func (r *moveRoom) take(size int) { r.most, r.left = r.most-size, r.left-size }

// forExpired is about how many bytes may still go into removing expired items: some beside whatever
// else there is, and more if that leaves room.
func (r *moveRoom) forExpired() int {
	most := due.ExpiredBytes + max(r.remaining(), 0)
	if over := r.expired - due.ExpiredBytes; over > 0 {
		most += over // which takeExpired has taken from the rest
	}
	return min(most, due.MostExpiredBytes) - r.expired
}

// takeExpired takes room to remove expired items.
func (r *moveRoom) takeExpired(size int) {
	before := max(r.expired-due.ExpiredBytes, 0)
	r.expired += size
	r.take(max(r.expired-due.ExpiredBytes, 0) - before)
}
