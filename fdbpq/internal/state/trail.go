package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Trail returns how many attempts the queue keeps of a job. An error of the store makes Flush fail.
func (g *Ledger) Trail() int64 {
	set, err := g.ReadableSettings()
	if err != nil {
		g.fail(err)
		return 0
	}
	return set.Trail
}

// NoteAttempt writes an attempt of an item that stays in the queue, if the queue keeps them.
func (g *Ledger) NoteAttempt(id *codec.ID, a trail.Attempt) {
	most := g.Trail()
	if most == 0 {
		return
	}
	g.Tx.Set(g.L.AttemptKey(id, a.Number), codec.EncodeAttempt(&a))
	if old := a.Number - most + 1; old > 1 { // the first stays
		g.Tx.Clear(g.L.AttemptKey(id, old))
	}
}

// ForgetAttempt removes an attempt that does not count after all.
func (g *Ledger) ForgetAttempt(h *codec.Record) {
	if h.Attempts() == h.Deliveries && g.Trail() > 0 {
		g.Tx.Clear(g.L.AttemptKey(&h.ID, h.Deliveries))
	}
}

// forgetAttempts removes the attempts of an item that leaves its place.
func (g *Ledger) forgetAttempts(h *codec.Record) {
	last := h.Attempts()
	if last < 1 || g.Trail() == 0 {
		return
	}
	if g.ForgetRanges {
		g.Tx.ClearRange(g.L.AttemptRange(&h.ID))
		return
	}
	g.Tx.Clear(g.L.AttemptKey(&h.ID, 1))
	for n := max(last-settings.MaxTrail+1, 2); n <= last; n++ {
		g.Tx.Clear(g.L.AttemptKey(&h.ID, n))
	}
}

// ForgetSize is about how many bytes of a transaction it takes to remove the attempts of an item.
func (g *Ledger) ForgetSize(h *codec.Record) int {
	if h.Attempts() < 1 || g.Trail() == 0 {
		return 0
	}
	keys := int(min(h.Attempts(), settings.MaxTrail+1))
	if g.ForgetRanges {
		keys = min(keys, 2)
	}
	return keys * 3 * (len(g.L.Prefix) + codec.KindSize + 64)
}

// Forget removes the history of a detached item that leaves the queue, and its attempts. past is
// the history as stored; nil means that there is none.
func (g *Ledger) Forget(id *codec.ID, past []byte) {
	if past != nil {
		g.ClearHistory(id, past)
		g.forgetAttempts(RecordOf(id, past))
	}
}

// RecordOf returns the record of a ready item, with its history as stored. What cannot be read is
// left out.
func RecordOf(id *codec.ID, past []byte) *codec.Record {
	history, _ := codec.ParseHistory(id, past)
	return &codec.Record{ID: *id, State: codec.Ready, History: history}
}

// AttemptsRead is the attempts of an item being read. nil has none.
type AttemptsRead struct {
	l     *codec.Layout
	id    codec.ID
	pairs kv.Future[[]kv.KeyValue]
}

// BeginAttempts starts to read the attempts of an item, unless it cannot have any. Whoever writes
// one also writes the item's own key, with which the caller conflicts.
func BeginAttempts(l *codec.Layout, r kv.Reader, h *codec.Record) *AttemptsRead {
	if h.Attempts() < 1 {
		return nil
	}
	return &AttemptsRead{l, h.ID, r.GetRange(l.AttemptRange(&h.ID), kv.RangeOptions{})}
}

// Finish waits for the attempts, in their order. It leaves out those that cannot be read, and one
// of the number that is given, which another is about to replace. The error is one of the store.
func (r *AttemptsRead) Finish(without int64) (all []trail.Attempt, err error) {
	if r == nil {
		return nil, nil
	}
	pairs, err := r.pairs.Get()
	for _, pair := range pairs {
		if a, err := r.l.ParseAttempt(&r.id, pair); err == nil && a.Number != without {
			all = append(all, a)
		}
	}
	return all, err
}

// OfAllLives waits for the attempts of an item, and returns them with those of earlier lives, which
// its message carries: at most as many as the queue keeps, or the message carries. It returns nil
// if there are none of this life. The error is one of the store.
func (r *AttemptsRead) OfAllLives(from kv.Reader, m *codec.Message) ([]trail.Attempt, error) {
	attempts, err := r.Finish(0)
	if err != nil || len(attempts) == 0 {
		return nil, err
	}
	all := m.Attempts(attempts)
	past := len(all) - len(attempts)
	if past == 0 {
		return all, nil
	}

	var g Ledger
	g.ReadSettings(from, r.l)
	set, err := g.ReadableSettings()
	if err != nil {
		return nil, err
	}
	return trail.Ends(all, max(int(set.Trail), past)), nil
}
