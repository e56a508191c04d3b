package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// Wrote reports whether the ledger has written anything.
func (g *Ledger) Wrote() bool { return g.wrote }

// Strays reports whether items of staged pops have come back. They may have any count.
func (g *Ledger) Strays() bool { return g.strays }

// Err returns the error that Flush will return.
func (g *Ledger) Err() error { return g.err }

// fail keeps the first error for Flush.
func (g *Ledger) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Ahead is when there is something to do about a queue even if no request comes.
type Ahead struct {
	// Due is when the next item falls due: its lease or delay ends, or it expires. Zero if none
	// does.
	Due time.Time
	// Over is when the window of the next message id ends; zero if there is none.
	Over time.Time
	// Source says that the queue has a source, or that its source has changed.
	Source bool
}

// QueueAhead is the Ahead of a queue of a Keyspace.
type QueueAhead struct {
	Queue codec.QueueName
	Ahead
}

// AppendAhead appends what lies ahead by what the ledger has written, if anything does.
func (g *Ledger) AppendAhead(list []QueueAhead) []QueueAhead {
	if g.ahead == (Ahead{}) || g.L.List == nil {
		return list
	}
	queue := codec.QueueName{FIFO: g.L.Fifo, Name: g.L.Name()}
	return append(list, QueueAhead{Queue: queue, Ahead: g.ahead})
}

// NoteSource records that the queue's source has changed.
func (g *Ledger) NoteSource() { g.ahead.Source = true }

// Removed counts items that left their queues although no operation took or removed them, and items
// that came although nobody pushed them.
type Removed struct {
	Expired   int64 // their time was over
	Discarded int64 // DiscardOld made room
	Dead      int64 // they moved to a dead-letter queue

	Fired   int64         // schedules pushed them
	Skipped int64         // times of schedules without an item
	Late    time.Duration // how much later than their times items were pushed, summed up
}

// Add adds the counts of other items.
func (r *Removed) Add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
	r.Fired += more.Fired
	r.Skipped += more.Skipped
	r.Late += more.Late
}

// Removed returns what has left the queue, or come into it, without an operation.
func (g *Ledger) Removed() Removed { return g.removed }

// CountFired counts an item that a schedule has pushed this late.
func (g *Ledger) CountFired(late time.Duration) {
	g.removed.Fired++
	g.removed.Late += late
}

// CountSkipped counts times of schedules without an item.
func (g *Ledger) CountSkipped(n int64) { g.removed.Skipped += n }
