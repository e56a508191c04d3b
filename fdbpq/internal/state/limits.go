package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Load is what limits limit: a number of items, and their bytes.
type Load struct{ Items, Bytes int64 }

func (a Load) Plus(b Load) Load { return Load{a.Items + b.Items, a.Bytes + b.Bytes} }

func (a Load) Minus(b Load) Load { return Load{a.Items - b.Items, a.Bytes - b.Bytes} }

// Exceeds returns an error if the limits do not allow this many. They say how many there are.
func (a Load) Exceeds(s *codec.Settings) error {
	switch {
	case s.MaxItems > 0 && a.Items > s.MaxItems:
		return codec.ErrFull
	case s.MaxBytes > 0 && a.Bytes > s.MaxBytes:
		return codec.ErrFullBytes
	}
	return nil
}

// BeginLoad starts to read the counters of items in all states, and of their bytes.
func (g *Ledger) BeginLoad() (counters []kv.Future[[]byte]) {
	counters = append(counters, g.Tx.Get(g.L.TotalKey()))
	for _, s := range codec.HeldStates {
		counters = append(counters, g.Tx.Get(g.L.StateCounterKey(s)))
	}
	if g.CountsBytes() {
		counters = append(counters, g.Tx.Get(g.L.BytesKey()))
	}
	return counters
}

// Unwritten is the changes of the counters that Flush will write.
func (g *Ledger) Unwritten() (n Load) {
	n.Items = g.ready
	for _, delta := range g.held {
		n.Items += delta
	}
	n.Bytes = g.bytes.delta
	return n
}
