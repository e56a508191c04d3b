package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// moveRoom is the room of a transaction for items that it moves: leases, requeues, buries or
// evicts.
type moveRoom struct {
	ops   []Op
	most  int  // bytes that may move if the operations add nothing
	left  int  // bytes that may still move, once something has
	moves int  // so far
	full  bool // a large item had no room, so no more of them are read to find out whether they have
}

// fits reports whether the transaction has room to move that many bytes, and takes the room. The
// value of the first item always fits, and so does a whole item alone.
func (r *moveRoom) fits(size int) bool {
	switch {
	case r.moves == 0:
		r.left = roomBeside(r.ops, r.most)
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

// roomBeside returns how many bytes the leases of the operations may move, since a transaction
// must not grow too large: what the pushes and restores leave of room.
func roomBeside(ops []Op, room int) int {
	for i := range ops {
		room -= state.RestoreOverhead
		switch ops[i].Kind {
		case OpPush:
			room -= ops[i].Message.Size() + ops[i].Queue.Layout().DedupSize(&ops[i].Message)
		case OpRestore:
			if item := ops[i].Item; item != nil {
				room -= item.Size() + ops[i].Queue.Layout().DedupSize(&item.Message)
			}
		}
	}
	return room
}
