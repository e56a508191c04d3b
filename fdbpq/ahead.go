package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Ahead is when there will be something to do about a queue that nobody asks for.
type Ahead struct {
	// Due is when the next item falls due: a lease or delay is over, or the item expires. Zero if
	// none will.
	Due time.Time
	// Over is when the window of the next message id is over; zero if there is none.
	Over time.Time
}

// QueueAhead is that of a queue of a Keyspace.
type QueueAhead struct {
	Queue QueueName
	Ahead
}

// appendAhead appends what falls due of what the ledger has written, if anything does.
func (g *ledger) appendAhead(list []QueueAhead) []QueueAhead {
	if g.ahead == (Ahead{}) || g.l.list == nil {
		return list
	}
	return append(list, QueueAhead{QueueName{g.l.fifo, g.l.name()}, g.ahead})
}

// Ahead returns what falls due of what the batch has written, or may have written. Queues may be named more
// than once. Call it after Wait, also after an error.
func (p *Pending) Ahead() []QueueAhead { return p.ahead }

// ReadAhead returns what is ahead of each of the queues. All queues take one round trip. An entry that
// cannot be read counts as none.
func ReadAhead(r kv.Reader, queues []Target) ([]Ahead, error) {
	type heads struct{ due, over kv.Future[[]kv.KeyValue] }
	begun := make([]heads, len(queues))
	for i, queue := range queues {
		l := queue.layout()
		begun[i].due = r.GetRange(l.kindRange(kindDue), kv.RangeOptions{Limit: 1})
		begun[i].over = r.GetRange(l.kindRange(kindMsgIDEnd), kv.RangeOptions{Limit: 1})
	}
	found := make([]Ahead, len(queues))
	for i, queue := range queues {
		due, err := begun[i].due.Get()
		if err != nil {
			return nil, err
		}
		over, err := begun[i].over.Get()
		if err != nil {
			return nil, err
		}
		if len(due) > 0 {
			if at, err := queue.layout().dueTime(due[0].Key); err == nil {
				found[i].Due = at
			}
		}
		if len(over) > 0 {
			if until, _, err := queue.layout().parseMsgIDEnd(over[0].Key); err == nil {
				found[i].Over = until
			}
		}
	}
	return found, nil
}

// Swept is what Sweep has done.
type Swept struct {
	CaughtUp
	// MsgIDs is how many message ids were removed.
	MsgIDs int64
	// Queues is how it left each of the queues.
	Queues []SweptQueue
}

// SweptQueue is how Sweep has left a queue.
type SweptQueue struct {
	// More says that there may be more to do, for which the transaction had no room.
	More bool
	// Done says that it has removed or brought back something: others may have taken all the room.
	Done bool
	// Err wraps ErrCorrupt if something cannot be read, which stays as it is.
	Err error
}

// Limits of one transaction of Sweep, about. They are lower than those of catchUp, because requests may wait
// for it.
const (
	sweptItems  = 512
	sweptBytes  = 250_000
	sweptMsgIDs = 512
)

// Sweeper sweeps queues. It is used by one goroutine at a time.
type Sweeper struct{ tally *tally }

// NewSweeper returns a Sweeper for queues of the Keyspace.
func (k *Keyspace) NewSweeper(db kv.Database) *Sweeper { return &Sweeper{k.newTally(db)} }

// Sweep does what is due by now in the queues, and removes message ids that are over, as much as one
// transaction has room for. Whoever asks a queue does the same for items before: Sweep is for queues that
// nobody asks. It conflicts with whoever handles the same items, never with pushes. Pass few queues at
// a time, all of one Keyspace, and those that ReadAhead says have something due.
//
// Errors: those of the store, and the context's error; if some was done all the same, the next call counts the
// items that expired.
func (w *Sweeper) Sweep(ctx context.Context, queues []Target, now time.Time) (swept Swept, err error) {
	layouts := make([]*layout, len(queues))
	for i, queue := range queues {
		layouts[i] = queue.layout()
	}
	s := &sweeping{layouts: layouts, now: now}
	c, err := w.tally.run(ctx, s.run)
	return Swept{CaughtUp: c, MsgIDs: s.msgIDs, Queues: s.queues}, err
}

// sweeping is the transaction of a Sweep.
type sweeping struct {
	layouts []*layout
	now     time.Time

	msgIDs int64
	queues []SweptQueue
}

func (s *sweeping) run(tx kv.Transaction) (CaughtUp, error) {
	s.msgIDs, s.queues = 0, make([]SweptQueue, len(s.layouts))
	page := max(sweptMsgIDs/len(s.layouts), 1)
	over := make([]kv.Future[[]kv.KeyValue], len(s.layouts))
	for i, l := range s.layouts {
		over[i] = tx.Snapshot().GetRange(l.overRange(s.now), kv.RangeOptions{Limit: page})
	}
	dues, _, c, err := catchUpOnce(tx, dueIn(s.layouts...), s.now, max(sweptItems/len(s.layouts), 1), sweptBytes)
	if err != nil {
		return c, err
	}
	for i, l := range s.layouts {
		entries, err := over[i].Get()
		if err != nil {
			return c, err
		}
		more := len(entries) == page
		if len(c.DeadLetters) > 0 { // one may be so large that there is no room
			more, entries = len(entries) > 0, nil
		}
		for _, entry := range entries {
			l.removeMsgID(tx, entry)
		}
		s.msgIDs += int64(len(entries))
		s.queues[i] = SweptQueue{More: more || dues[i].behind(), Done: dues[i].done || len(entries) > 0, Err: dues[i].err}
	}
	return c, nil
}
