package fdbpq

import (
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
	return append(list, QueueAhead{Queue: QueueName{FIFO: g.l.fifo, Name: g.l.name()}, Ahead: g.ahead})
}

// Behind returns the queues of the Keyspace where more is due than the batch has handled, besides what it was
// to do. Call it after Wait.
func (p *Pending) Behind() []QueueName { return p.behind }

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
