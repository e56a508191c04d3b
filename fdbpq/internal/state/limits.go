package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Limits returns the settings that limit the queue. If they cannot be read, nothing does: the items
// themselves may be fine.
func (g *Ledger) Limits() (*codec.Settings, error) {
	s, err := g.Settings()
	if errors.Is(err, codec.ErrCorrupt) {
		return &codec.Settings{}, nil
	}
	return s, err
}

// LimitsLeased reports whether the queue limits how many items are leased, so that leases may wait for
// the end of another.
func (g *Ledger) LimitsLeased() (bool, error) {
	settings, err := g.Limits()
	if err != nil {
		return false, err
	}
	return settings.MaxLeased > 0, nil
}

func ReadCounter(value kv.Future[[]byte]) (int64, error) {
	encoded, err := value.Get()
	if err != nil {
		return 0, err
	}
	return ParseLength(encoded)
}

func ParseLength(value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: item counter has %d bytes: want 8", codec.ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

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
	for state := range codec.HeldState(codec.HeldStates) {
		counters = append(counters, g.Tx.Get(g.L.StateCounterKey(state)))
	}
	if g.CountsBytes() {
		counters = append(counters, g.Tx.Get(g.L.BytesKey()))
	}
	return counters
}

// Unwritten is the changes of the counters that flush will write.
func (g *Ledger) Unwritten() (n Load) {
	for _, delta := range g.deltas {
		n.Items += delta
	}
	for _, delta := range g.Held {
		n.Items += delta
	}
	n.Bytes = g.Bytes.Delta
	return n
}

// Victim is an item that may be discarded.
type Victim struct {
	H     *HeldItem
	Place []byte // see layout.place
	Load  Load   // what goes with it
	Own   bool   // this transaction pushed it
}
