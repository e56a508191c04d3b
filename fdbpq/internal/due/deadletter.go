package due

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Burials moves items to dead-letter queues in one transaction.
type Burials struct {
	tx     kv.Transaction
	now    time.Time
	known  *state.Known
	queues map[string]*DeadQueue // by prefix
	count  int64                 // of dead letters
}

// NewBurials returns the burials of a transaction. known saves reads; nil knows nothing.
func NewBurials(tx kv.Transaction, now time.Time, known *state.Known) Burials {
	return Burials{tx: tx, now: now, known: known}
}

// DeadQueue is a queue to which a transaction adds items: a dead-letter queue, a queue that gets
// items back from there, one with a schedule that fires, or one whose items change their priority.
type DeadQueue struct {
	ledger state.Ledger
	counts map[int64]kv.Future[int64] // the next counts being read, by priority
	next   map[int64]int64            // the next counts that are known
	moved  bool                       // items came here
}

// Burial is an item being read in order to bury it.
type Burial struct {
	Large bool // it has more than BeginItem reads

	item state.Stored
	from *state.Ledger
	to   *DeadQueue
}

// BeginBurial starts to read what burying an item takes.
func (b *Burials) BeginBurial(from *state.Ledger, id *codec.ID, s *codec.Settings) *Burial {
	to := b.Target(from.L.DeadLetters(s.DeadLetter), id.Priority)
	return &Burial{item: state.BeginItem(from.L, b.tx, id, state.Beginning), from: from, to: to}
}

// Target returns a queue to add items to, and starts to read its next count at a priority.
func (b *Burials) Target(l *codec.Layout, priority int64) *DeadQueue {
	to := b.queues[l.Prefix]
	if to == nil {
		to = &DeadQueue{
			ledger: state.NewLedger(b.tx, l, b.now, b.known),
			counts: map[int64]kv.Future[int64]{},
			next:   map[int64]int64{},
		}

		if b.queues == nil {
			b.queues = map[string]*DeadQueue{}
		}

		b.queues[l.Prefix] = to
		to.ledger.BeginSettings()
	}

	if _, begun := to.counts[priority]; !begun {
		to.counts[priority] = state.ReadNextCount(l, b.tx.Snapshot(), priority)
	}
	return to
}

// LoadNext waits for the next count at a priority. The error is ErrCorrupt or one of the store.
func (to *DeadQueue) LoadNext(priority int64) error {
	if _, known := to.next[priority]; known {
		return nil
	}
	next, err := to.counts[priority].Get()
	if err == nil {
		to.next[priority] = next
	}
	return err
}

// ReadableSettings is Ledger.ReadableSettings of the queue.
func (to *DeadQueue) ReadableSettings() (*codec.Settings, error) {
	return to.ledger.ReadableSettings()
}

// NewID returns the id of a message that is added at the end of a priority, with at as the time of
// its push. Call LoadNext before.
func (to *DeadQueue) NewID(priority int64, m *codec.Message, at time.Time) codec.ID {
	count, meta := to.next[priority], to.ledger.L.NeedsMeta(m)
	id := codec.NewID(priority, count, at, codec.UniqueBytes(1), meta)
	to.next[priority] = codec.Following(count)

	// The settings say whether items without a group are indexed.
	if settings, err := to.ReadableSettings(); err == nil { // else Add reports the error
		codec.SetGroup(&id, codec.GroupOf(m, settings))
	}
	return id
}

// Push adds a message at the end of a priority, with at as the time of its push, and lists the
// queue. The item is delayed until a time; zero is no delay. Call LoadNext before.
func (to *DeadQueue) Push(priority int64, m *codec.Message, at, until time.Time) codec.ID {
	g, id := &to.ledger, to.NewID(priority, m, at)
	g.AddToList()
	if until.After(g.Now) {
		g.AddDelayed(&id, m, codec.Micros(until))
	} else {
		g.Add(&id, m)
	}
	to.moved = true
	return id
}

// Load waits for what BeginBurial started, and for the item's new count. With rest it also reads
// the rest of a large item; without it the caller must not bury a large item. The error wraps
// ErrCorrupt if the item cannot be buried, or is one of the store.
func (p *Burial) Load(h *codec.Record, rest bool) error {
	err := p.item.Load(p.from.Tx, p.from.L, h.Value, false)
	p.Large = p.Large || p.item.Cut
	if err == nil && rest && p.item.Cut {
		err = p.item.Load(p.from.Tx, p.from.L, h.Value, true)
	}

	if err != nil || p.item.Cut {
		return err
	}
	return p.to.LoadNext(h.ID.Priority)
}

// Size is about how many bytes burying a loaded item takes in the transaction.
func (p *Burial) Size() int { return p.item.Item.Message.Size() + codec.DeadLetterSize }

// Bury adds a loaded item to its dead-letter queue. The caller must have deleted it from its own
// queue.
func (b *Burials) Bury(p *Burial, h *codec.Record, reason string) {
	pushed := codec.PushedAt(&h.ID)
	if pushed.IsZero() { // another program wrote it
		pushed = b.now
	}

	// A dead letter does not expire, and others may reuse its message id and unique key.
	m := p.item.Item.Message
	m.MsgID, m.Unique, m.Expires = "", "", time.Time{}
	m.DeadLetter = b.letter(p.from.L, reason)
	m.DeadLetter.Deliveries, m.DeadLetter.Error = h.Deliveries, h.Reason

	p.to.Push(h.ID.Priority, &m, pushed, time.Time{})
	b.count++
}

// letter returns the record of an item that comes from a queue.
func (b *Burials) letter(of *codec.Layout, reason string) *codec.DeadLetter {
	return &codec.DeadLetter{Queue: of.Name(), Reason: reason, At: codec.Micros(b.now)}
}

// BuryNew adds a message that was in no queue to a dead-letter queue. Call LoadNext before.
func (b *Burials) BuryNew(of *codec.Layout, to *DeadQueue, m codec.Message) {
	m.DeadLetter = b.letter(of, m.DeadLetter.Reason)
	to.Push(0, &m, b.now, time.Time{})
	b.count++
}

// Count returns how many items were buried.
func (b *Burials) Count() int64 { return b.count }

// Any reports whether any item may have moved.
func (b *Burials) Any() bool { return len(b.queues) > 0 }

// Flush writes the counters of all queues that Target has returned.
func (b *Burials) Flush() error {
	for _, to := range b.queues {
		if err := to.ledger.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// AppendAhead appends when what was added falls due.
func (b *Burials) AppendAhead(list []state.QueueAhead) []state.QueueAhead {
	for _, to := range b.queues {
		list = to.ledger.AppendAhead(list)
	}
	return list
}

// Ready returns how much Flush will add to the counter of ready items of a queue.
func (b *Burials) Ready(l *codec.Layout) int64 {
	if to := b.queues[l.Prefix]; to != nil {
		return to.ledger.Ready()
	}
	return 0
}

// Reaches reports whether this transaction has added items to the queue.
func (b *Burials) Reaches(l *codec.Layout) bool {
	to := b.queues[l.Prefix]
	return to != nil && to.moved
}

// Reached returns the queues of the Keyspace that got items.
func (b *Burials) Reached() (names []codec.QueueName) {
	for _, to := range b.queues {
		if to.moved {
			names = to.ledger.L.AppendName(names)
		}
	}
	return names
}
