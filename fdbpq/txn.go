package fdbpq

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// txn is a transaction as all families of operations see it.
type txn struct {
	tx       kv.Transaction // nil if it only reads
	snapshot kv.Reader      // reads without conflict
	now      time.Time      // zero if it only reads: nothing expires then
	asOf     time.Time      // the same, but never zero
	ops      []Op
	results  []Result          // by place in ops
	queues   []*queueTxn       // in order of first use
	popped   []state.TakenItem // in order of removal
	known    *state.Known
	blind    bool // see kv.BeginOptions

	passes int // items that a walk passes over before a search begins: see maxPassed

	moving   moveRoom
	returned state.ItemRoom
	dead     due.Burials
}

// queueTxn is one queue of a transaction as all families of operations see it.
type queueTxn struct {
	*txn
	l      *codec.Layout
	ledger state.Ledger
	due    due.Due

	looked bool            // an operation other than a pop depends on which items are ready
	takes  bool            // there are pops, operations with tokens or edits
	peeked bool            // one is a peek
	pushed map[ID]struct{} // ready items of this transaction's own, if peeked
}

// notePushed records an item of this transaction's own, for peeks.
func (q *queueTxn) notePushed(id *ID) {
	if !q.peeked {
		return
	}
	if q.pushed == nil {
		q.pushed = map[ID]struct{}{}
	}
	q.pushed[*id] = struct{}{}
}

// bringBack handles what is due in queues, as far as there is room beside the operations.
func (t *txn) bringBack(queues []*due.Due) error {
	room := due.Room{
		Bytes:   min(due.HeldBytes+max(t.moving.remaining(), 0), due.MostHeldBytes),
		Expired: t.moving.forExpired(),
	}
	if t.moving.moves == 0 && !slices.ContainsFunc(t.queues, func(q *queueTxn) bool { return q.due.Done }) {
		room.Fits = t.moving.fits // a large item has room while it is the only one that moves
	}

	most, mostExpired := room.Bytes, room.Expired
	err := due.BringBack(queues, &room)
	t.moving.takeExpired(mostExpired - room.Expired)
	if over := most - room.Bytes - due.HeldBytes; over > 0 {
		t.moving.take(over)
	}
	return err
}

// failOps makes an error about one queue the result of the operations at the given indexes. It
// returns any other error, which ends the whole transaction.
func (t *txn) failOps(err error, indexes ...int) error {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNoRoom) {
		return err
	}
	t.failAll(indexes, err)
	return nil
}

// failAll makes an error the result of the operations at the given indexes.
func (t *txn) failAll(indexes []int, err error) {
	for _, i := range indexes {
		t.results[i].Err = err
	}
}

// moreExpired is the error of pops and peeks that meet an item that has expired, because not all that
// is due was handled.
func (q *queueTxn) moreExpired() error {
	if q.due.Err != nil && !q.due.Done { // the next transaction would do no more
		return q.due.Err
	}
	return state.ErrMoreExpired
}

// leadsPops reports whether an operation is the first of pops, or leases, that share MaxBytes.
func (t *txn) leadsPops(i int) bool {
	return !t.ops[i].Follows || i == 0 || t.ops[i-1].Kind != t.ops[i].Kind
}

// messageOf is the message of a push as it is stored.
func (t *txn) messageOf(i int, settings *Settings) Message {
	op := &t.ops[i]
	m := op.Message
	m.Expires = op.expires(t.now, settings)
	return m
}

// giveBack returns a detached item to its queue, at once or after the delay, unless it has expired.
// The time is when the delay is over, zero without one.
func (q *queueTxn) giveBack(op *Op, h *codec.Record, settings *Settings) (nextDue time.Time) {
	if h.Expired(q.now) {
		q.ledger.DeleteExpired(h)
		return time.Time{}
	}

	h.Fence = codec.NextFence(h.Fence) // ends the token
	if op.Uncounted || op.Kind == OpRelease {
		h.Deliveries--
	}
	h.NoteReason(op.nakReason())

	delay := op.Delay
	if delay == Backoff {
		delay = settings.BackoffAfter(h.Deliveries)
	}
	if delay <= 0 {
		q.ledger.Requeue(h)
		return time.Time{}
	}
	h.State, h.Due = Delayed, q.now.Add(delay)
	q.ledger.Hold(h)
	return codec.Micros(h.Due)
}

// nakReason is the reason that the operation gives an item to keep, "" for none.
func (op *Op) nakReason() string {
	if op.Kind == OpNak {
		return op.Reason
	}
	return ""
}

// each runs a step for each queue, or part, of a family, until one fails.
func each[Q any](family []Q, step func(Q) error) error {
	for _, q := range family {
		if err := step(q); err != nil {
			return err
		}
	}
	return nil
}

// groups returns the operations at the given indexes, those together that are done together or not
// at all: pushes that follow each other, and acknowledgements.
func groups(ops []Op, indexes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for rest := indexes; len(rest) > 0; {
			size := 1
			for size < len(rest) && rest[size] == rest[size-1]+1 && tied(ops, rest[size]) {
				size++
			}
			if !yield(rest[:size]) {
				return
			}
			rest = rest[size:]
		}
	}
}

// tied reports whether an operation and the one before it are done together or not at all.
func tied(ops []Op, i int) bool {
	kind := ops[i].Kind
	return i > 0 && ops[i].Follows && ops[i-1].Kind == kind && (kind == OpPush || kind == OpAck)
}

// notYet is for what may be possible in the next transaction.
func notYet(err error) error { return fmt.Errorf("%w, so far: %w", err, ErrNoRoom) }

func notFound(id *ID) error { return fmt.Errorf("%w: %s", ErrNotFound, id) }

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
