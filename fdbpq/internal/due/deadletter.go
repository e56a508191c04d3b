package due

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Burial is an item being read in order to bury it.
type Burial struct {
	Large bool // it has more than BeginItem reads

	item     state.ItemRead
	attempts *state.AttemptsRead
	past     []trail.Attempt // once loaded, without the last one
	trail    int64           // Settings.Trail of the queue that the item leaves
	from     *state.Ledger
	to       *Destination
}

// BeginBurial starts to read what burying an item takes.
func (o *Outgoing) BeginBurial(from *state.Ledger, h *codec.Record, s *codec.Settings) *Burial {
	to := o.To(from.L.DeadLetters(s.DeadLetter), h.ID.Priority)
	p := &Burial{trail: s.Trail, from: from, to: to}
	p.item = state.BeginItem(from.L, o.Tx, &h.ID, state.Beginning)
	if p.trail > 0 {
		p.attempts = state.BeginAttempts(from.L, o.Tx.Snapshot(), h)
	}
	return p
}

// Load waits for what BeginBurial started, and for the item's new count. It completes h, which then
// can be deleted without another read. With rest it also reads the rest of a large item; without it
// the caller must not bury a large item. The error wraps ErrCorrupt if the item cannot be buried,
// or is one of the store.
func (p *Burial) Load(h *codec.Record, rest bool) error {
	err := p.item.Load(p.from.Tx, p.from.L, h.Value, false)
	p.Large = p.Large || p.item.Cut
	if err == nil && rest && p.item.Cut {
		err = p.item.Load(p.from.Tx, p.from.L, h.Value, true)
	}

	if err != nil || p.item.Cut {
		return err
	}
	h.Message = &p.item.Item.Message
	if p.past, err = p.attempts.Finish(h.Deliveries); err != nil {
		return err
	}
	return p.to.LoadNext(h.ID.Priority)
}

// Size is about how many bytes burying a loaded item takes in the transaction.
func (p *Burial) Size() int {
	size := p.item.Item.Message.Size() + codec.DeadLetterSize + p.to.Ledger.L.AliasSize()
	if p.trail > 0 {
		size += trail.MaxBytes
	}
	return size
}

// Bury adds a loaded item to its dead-letter queue. The caller must have deleted it from its own
// queue. last is the item's last attempt, nil if it does not count.
func (o *Outgoing) Bury(p *Burial, h *codec.Record, reason string, last *trail.Attempt) {
	pushed := codec.PushedAt(&h.ID)
	if pushed.IsZero() { // another program wrote it
		pushed = o.Now
	}

	// A dead letter does not expire, and others may reuse its message id and unique key.
	m, job := p.item.Item.Message, p.item.Item.Job()
	m.MsgID, m.Unique, m.Expires, m.First, m.Joiner = "", "", time.Time{}, &job, nil
	before := m.DeadLetter
	m.DeadLetter = o.letter(p.from.L, reason)

	// One that dies again as a dead letter still goes back to its first queue, unless it is there.
	if before != nil && before.Queue != p.to.Ledger.L.Name() {
		m.DeadLetter.Queue = before.Queue
	}
	m.DeadLetter.Deliveries, m.DeadLetter.Error = h.Deliveries, h.Reason
	attempts := p.past
	if last != nil {
		attempts = append(attempts, *last)
	}
	m.EndLife(attempts, p.trail)

	p.to.Push(h.ID.Priority, &m, pushed, time.Time{})
	p.from.SideEffects.Dead++
	p.from.Ended = append(p.from.Ended, p.item.Item.Job())
}

// letter returns the record of an item that comes from a queue.
func (o *Outgoing) letter(of *codec.Layout, reason string) *codec.DeadLetter {
	return &codec.DeadLetter{Queue: of.Name(), Reason: reason, At: codec.Micros(o.Now)}
}

// BuryNew adds a message that was in no queue to a dead-letter queue. Call LoadNext before.
func (o *Outgoing) BuryNew(of *state.Ledger, to *Destination, m codec.Message) {
	m.DeadLetter = o.letter(of.L, m.DeadLetter.Reason)
	to.Push(0, &m, o.Now, time.Time{})
	of.SideEffects.Dead++
}
