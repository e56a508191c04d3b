package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// refuse is for operations that are not tried, because there was no room for others.
func refuse(results []Result, indexes []int) {
	for _, i := range indexes {
		results[i].Err = state.ErrNoRoom
	}
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

// fits reports whether the transaction has room to move that many bytes, and takes the room. The
// value of the first item always fits, and so does a whole item alone.
func (t *txOps) fits(size int) bool {
	switch {
	case t.moves == 0:
		t.room = roomBeside(t.ops, t.allRoom)
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
