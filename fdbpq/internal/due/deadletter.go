package due

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Burials moves items to dead-letter queues in one transaction.
type Burials struct {
	Tx     kv.Transaction
	Now    time.Time
	Known  *state.Known
	Queues map[string]*DeadQueue // by prefix
	Count  int64                 // of dead letters
}

// DeadQueue is a dead-letter queue of a transaction.
type DeadQueue struct {
	Ledger state.Ledger
	last   map[int64]state.LastItems // being read, by priority
	next   map[int64]int64           // the next count
	Buried map[codec.ID]struct{}
}

// Burial is an item that is to be buried, being read.
type Burial struct {
	state.WholeItem
	from *state.Ledger
	to   *DeadQueue
}

// Begin starts to read what it takes to bury an item.
func (b *Burials) Begin(from *state.Ledger, id *codec.ID, s *codec.Settings) *Burial {
	to := b.Target(from.L.DeadLetters(s.DeadLetter), id.Priority)
	return &Burial{WholeItem: state.BeginWhole(from.L, b.Tx, id), from: from, to: to}
}

// Target returns the queue that items of a priority move to, whose next count it starts to read.
func (b *Burials) Target(l *codec.Layout, priority int64) *DeadQueue {
	to := b.Queues[l.Prefix]
	if to == nil {
		to = &DeadQueue{
			Ledger: state.Ledger{Tx: b.Tx, L: l, Now: b.Now, Facts: b.Known.Queue(l)}, last: map[int64]state.LastItems{}, next: map[int64]int64{}, Buried: map[codec.ID]struct{}{},
		}
		if b.Queues == nil {
			b.Queues = map[string]*DeadQueue{}
		}
		b.Queues[l.Prefix] = to
		to.Ledger.BeginSettings()
	}
	if _, begun := to.last[priority]; !begun {
		to.last[priority] = state.ReadLast(l, b.Tx.Snapshot(), priority)
	}
	return to
}

// LoadNext waits for the next count of a priority.
func (to *DeadQueue) LoadNext(priority int64) error {
	if _, known := to.next[priority]; known {
		return nil
	}
	next, err := state.NextCount(to.Ledger.L, to.last[priority])
	if err == nil {
		to.next[priority] = next
	}
	return err
}

// TakeNext returns the next count of a priority, and counts on.
func (to *DeadQueue) TakeNext(priority int64) int64 {
	count := to.next[priority]
	to.next[priority] = codec.Following(count)
	return count
}

// Load waits for what begin started, and for the count that the item gets. With rest it also
// reads the rest of a large item; without, the caller must not bury one. The error wraps
// ErrCorrupt if the item cannot be buried, or is one of the store.
func (p *Burial) Load(h *codec.Held, rest bool) error {
	if err := p.WholeItem.Load(p.from, &h.ID, h.Value, rest); err != nil || p.Large && !rest {
		return err
	}
	return p.to.LoadNext(h.ID.Priority)
}

// Size is about how many bytes burying a loaded item takes in the transaction.
func (p *Burial) Size() int { return p.Item.Item.Message.Size() + codec.DeadLetterSize }

// Bury adds a loaded item to its dead-letter queue. The caller has removed it from its own.
func (b *Burials) Bury(p *Burial, h *codec.Held, reason string) {
	if p.from.L.List != nil {
		state.AddToList(p.to.Ledger.L, b.Tx, b.Now)
	}
	pushed := codec.PushedAt(&h.ID)
	if pushed.IsZero() { // another program wrote it
		pushed = b.Now
	}
	count := p.to.TakeNext(h.ID.Priority)
	m := p.Item.Item.Message
	m.MsgID, m.Unique, m.Expires = "", "", time.Time{}
	m.DeadLetter = &codec.DeadLetter{Queue: p.from.L.Name(), Reason: reason, At: codec.Micros(b.Now), Deliveries: h.Deliveries, Error: h.Reason}
	id := codec.NewID(h.ID.Priority, count, pushed, codec.UniqueBytes(1), true)
	p.to.Ledger.Add(&id, &m)
	b.Count++
	p.to.Buried[id] = struct{}{}
}

// Flush writes the counters of the dead-letter queues.
func (b *Burials) Flush() error {
	for _, to := range b.Queues {
		if err := to.Ledger.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Owns reports whether this transaction has buried the item in the queue.
func (b *Burials) Owns(l *codec.Layout, id *codec.ID) bool {
	to := b.Queues[l.Prefix]
	if to == nil {
		return false
	}
	_, owns := to.Buried[*id]
	return owns
}

// Reached returns the queues of the Keyspace that got items.
func (b *Burials) Reached() (names []codec.QueueName) {
	for _, to := range b.Queues {
		if len(to.Buried) > 0 {
			names = to.Ledger.L.AppendName(names)
		}
	}
	return names
}
