package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// SetExpiry writes the entry of an item in ("i"), if it expires.
func (g *Ledger) SetExpiry(id *codec.ID, l codec.Lasting) {
	if !l.Expires.IsZero() {
		g.Tx.Set(g.L.DueKey(l.Expires, g.L.ExpiryKey(id)), []byte(l.Unique))
		g.noteDue(l.Expires)
	}
}

// ClearExpiry removes what SetExpiry wrote.
func (g *Ledger) ClearExpiry(id *codec.ID, at time.Time) {
	if !at.IsZero() {
		g.Tx.Clear(g.L.DueKey(at, g.L.ExpiryKey(id)))
	}
}

// SetUntil writes a key that falls due at the given time.
func SetUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key, value []byte) {
	tx.Set(key, value)
	tx.Set(l.DueKey(at, key), []byte{})
}

// ClearUntil removes a key that falls due, or fell due, at the given time.
func ClearUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key []byte) {
	tx.Clear(key)
	tx.Clear(l.DueKey(at, key))
}

// noteDue records that something is written that falls due.
func (g *Ledger) noteDue(at time.Time) {
	g.ahead.Due = codec.Earliest(g.ahead.Due, at)
	g.facts.noteDue(at)
}

// ReadDue starts to read the first entries of what is due, without conflict: handling it conflicts
// with everyone who handles the same.
func (g *Ledger) ReadDue(limit int) kv.Future[[]kv.KeyValue] {
	if g.facts.quiet(g.Now) {
		return nothing
	}
	head := g.Tx.Snapshot().GetRange(g.L.DueRange(g.Now), kv.RangeOptions{Limit: limit})
	if g.facts == nil {
		return head
	}

	if entries, err := head.Get(); err == nil && len(entries) == 0 {
		g.facts.learnDue(g.Tx.Snapshot(), g.L)
	}
	return head
}
