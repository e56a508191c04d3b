package fdbpq

import (
	"fmt"
	"math"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// itemRoom is the items that the operations of a transaction return, and what it reads for that. All of it is in
// memory at once, so it is bounded whatever the operations ask for: see Batcher.LimitReturned.
type itemRoom struct {
	most  int // bytes of items, unless there is only one
	items int // so far
	bytes int // of these

	refused bool // there was an item without room; nothing more is read to see whether another one has some
}

// maxPage bounds itemRoom.page.
const maxPage = 4 << 20

// noBound is more bytes than there are.
const noBound = math.MaxInt32

// left returns how many bytes the next item may have.
func (r *itemRoom) left() int {
	if r.items == 0 {
		return noBound
	}
	return r.most - r.bytes
}

// take reports whether an item of that many bytes may be returned, and counts it. The first always may.
func (r *itemRoom) take(size int) bool {
	if r.refused = r.refused || size > r.left(); r.refused {
		return false
	}
	r.items++
	r.bytes += size
	return true
}

// page is how many bytes of values are read together where the next read can follow once it is known
// how large they are.
func (r *itemRoom) page() int { return min(r.most, maxPage) }

// atOnce is how many values are read together where nothing is known of them: one can have up to
// kv.MaxValueSize bytes. Most are small, so that is a few times more than fit into a page.
func (r *itemRoom) atOnce() int { return max(8*r.page()/kv.MaxValueSize, 16) }

// share returns the part of a page for reads that want some of all values.
func (r *itemRoom) share(want, all int) int { return max(r.page()*want/max(all, 1), 1) }

// refuse is for operations that are not tried, because there was no room for others.
func refuse(results []Result, indexes []int) {
	for _, i := range indexes {
		results[i].Err = errNoRoom
	}
}

// roomBeside returns how many bytes the leases of the operations may move, since a transaction
// must not grow too large: what the pushes and restores leave of room.
func roomBeside(ops []Op, room int) int {
	for i := range ops {
		room -= restoreOverhead
		switch ops[i].Kind {
		case OpPush:
			room -= ops[i].Message.Size() + ops[i].Queue.layout().dedupSize(&ops[i].Message)
		case OpRestore:
			if item := ops[i].Item; item != nil {
				room -= item.Size() + ops[i].Queue.layout().dedupSize(&item.Message)
			}
		}
	}
	return room
}

// errNoRoom is for what the next transaction may have room for.
var errNoRoom = fmt.Errorf("%w: %w", ErrItemTooLarge, ErrNoRoom)

// fits reports whether the transaction has room to move that many bytes, and takes the room. The
// value of the first item always fits, and so does a whole item alone.
func (t *txOps) fits(size int) bool {
	switch {
	case t.moves == 0:
		t.room = roomBeside(t.ops, t.allRoom)
		if size > chunkSize && size > t.room+roomAlone {
			return false
		}
	case size > t.room:
		return false
	}
	t.moves++
	t.room -= size
	return true
}

// roomAlone is how much more than roomBeside the first item may take. A transaction has that room
// because of the difference between MaxMessageSize and kv.MaxTransactionSize.
const roomAlone = 100_000
