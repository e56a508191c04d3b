package state

import (
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Lookup reads the keys that an item may have: its key in ("h"), and its key and history in ("i").
type Lookup struct {
	held, item, history kv.Future[[]byte] // nil if not begun
	dropped             int               // bytes of the item's value that Shrink has dropped
	known               *codec.Record     // the leased item, without its value; nothing is read
}

// LookUp starts to read an item wherever it is, without its history.
func LookUp(l *codec.Layout, r kv.Reader, id *codec.ID) Lookup {
	return Lookup{held: r.Get(l.HeldKey(id)), item: r.Get(l.ItemKey(id))}
}

// LookUp starts to read an item wherever it is, with its history.
func (g *Ledger) LookUp(id *codec.ID) Lookup {
	k := g.LookUpHeld(id)
	k.item, k.history = g.Tx.Get(g.L.ItemKey(id)), g.Tx.Get(g.L.HistoryKey(id))
	return k
}

// LookUpHeld starts to read an item if it is held.
func (g *Ledger) LookUpHeld(id *codec.ID) Lookup {
	return Lookup{held: g.Tx.Get(g.L.HeldKey(id))}
}

// LookUpLeased is LookUpHeld for callers that do not need the value. It reads nothing if the lease
// is known from an earlier transaction.
func (g *Ledger) LookUpLeased(id *codec.ID) Lookup {
	if g.cache != nil {
		if known := g.cache.leased[*id]; known != nil {
			return Lookup{known: known}
		}
	}
	return g.LookUpHeld(id)
}

// Known reports whether the item was known, without its value, and nothing is read. The message is
// nil unless that was known as well.
func (k *Lookup) Known() (m *codec.Message, known bool) {
	if k.known == nil {
		return nil, false
	}
	return k.known.Message, true
}

// Size waits for the reads that have begun, and returns how many bytes the item's own key has. The
// error is one of the store.
func (k *Lookup) Size() (n int, err error) {
	for _, read := range []kv.Future[[]byte]{k.held, k.item} {
		if read == nil {
			continue
		}
		value, err := read.Get()
		if err != nil {
			return 0, err
		}
		n += len(value)
	}
	return n, nil
}

// LookUpReady continues LookUpHeld with ("i"), if the item is not held. For a held one the key that
// was read is enough: every move of the item writes it.
func (k *Lookup) LookUpReady(r kv.Reader, l *codec.Layout, id *codec.ID) {
	if k.known != nil {
		return
	}
	if record, err := k.held.Get(); record == nil && err == nil && k.item == nil {
		k.item, k.history = r.Get(l.ItemKey(id)), r.Get(l.HistoryKey(id))
	}
}

// Shrink waits for the reads that have begun, and drops the value of the item, which
// acknowledgements do not need.
func (k *Lookup) Shrink(l *codec.Layout, id *codec.ID) error {
	if k.known != nil {
		return nil
	}

	record, err := k.held.Get()
	if err != nil {
		return err
	}

	// Clone, so that the record does not keep the whole value in memory.
	if h, err := codec.ParseRecord(id, record); record != nil && err == nil {
		k.dropped = len(codec.DecodeValue(l.Format, h.Value))
		k.held = kv.Ready(slices.Clone(record[:len(record)-len(h.Value)]), nil)
	}

	if k.item == nil {
		return nil
	}

	value, err := k.item.Get()
	if err == nil && value != nil {
		k.dropped = len(codec.DecodeValue(l.Format, value))
		k.item = kv.Ready([]byte{}, nil)
	}
	return err
}

// Find returns the item if the lease that the token names is the item's last one, and nil
// otherwise.
func (k *Lookup) Find(l *codec.Layout, token *codec.Token) (*codec.Record, error) {
	// Programs may make up tokens: with the fence 0 of an item that was never leased or, since the
	// keys of a FIFO queue have no priority, with a second id for the same item.
	if token.Fence <= 0 || l.Fifo && token.ID.Priority != 0 {
		return nil, nil
	}

	h, err := k.Anywhere(&token.ID)
	if h == nil || err != nil {
		return nil, err
	}

	// Shrink may have dropped the value, which still counts where bytes do.
	h.Dropped += k.dropped
	if h.State == codec.Ready { // it is back in ("i"), and nobody has leased it since
		past, err := k.Past()
		if err != nil {
			return nil, err
		}

		if h.History, err = codec.ParseHistory(&token.ID, past); err != nil {
			return nil, err
		}
		h.End = token.End
	}

	if h.Fence != token.Fence {
		return nil, nil
	}
	return h, nil
}

// Anywhere returns the item in whichever state it is, nil if it is not in the queue. One that is
// ready has neither history nor expiry.
func (k *Lookup) Anywhere(id *codec.ID) (*codec.Record, error) {
	if k.known != nil {
		h := *k.known
		return &h, nil
	}

	record, err := k.held.Get()
	if err != nil {
		return nil, err
	}

	if record != nil {
		return codec.ParseRecord(id, record)
	}

	value, err := k.item.Get()
	if value == nil || err != nil {
		return nil, err
	}
	return &codec.Record{ID: *id, State: codec.Ready, Value: value}, nil
}

// Past returns the history of an item in ("i"), as stored; nil if it has none.
func (k *Lookup) Past() ([]byte, error) { return k.history.Get() }

// Exists reports whether the item is in the queue.
func (k *Lookup) Exists() (bool, error) {
	for _, key := range []kv.Future[[]byte]{k.held, k.item} {
		if value, err := key.Get(); err != nil || value != nil {
			return value != nil, err
		}
	}
	return false, nil
}

// ReadHistory starts to read the history of an item that an operation is about to take. It reads
// without conflict, because an item and its history are written together.
func ReadHistory(l *codec.Layout, tx kv.Transaction, id *codec.ID) kv.Future[[]byte] {
	return tx.Snapshot().Get(l.HistoryKey(id))
}

// FirstHistory starts to read the first history of any item in ("i"). Usually there is none, and
// then pops read no histories of their items. It reads without conflict, as ReadHistory does.
func (g *Ledger) FirstHistory() kv.Future[[]kv.KeyValue] {
	if g.cache != nil && g.cache.noHistories {
		return nothing
	}
	histories := g.L.KindRange(codec.KindHistory)
	first := g.Tx.Snapshot().GetRange(histories, kv.RangeOptions{Limit: 1})
	if g.cache != nil {
		pairs, err := first.Get()
		g.cache.noHistories = err == nil && len(pairs) == 0
	}
	return first
}

// ReadDue starts to read the first due entries. It reads without conflict: handling an entry
// conflicts with everyone who handles the same one.
func (g *Ledger) ReadDue(limit int) kv.Future[[]kv.KeyValue] {
	if g.cache.quiet(g.Now) {
		return nothing
	}

	// Not known to be quiet, so the index must be read.
	head := g.Tx.Snapshot().GetRange(g.L.DueRange(g.Now), kv.RangeOptions{Limit: limit})
	if g.cache == nil {
		return head
	}

	// Nothing is due now, and until the first entry that there is.
	entries, err := head.Get()
	if err != nil || len(entries) > 0 {
		return head
	}
	g.cache.quietUntil = time.Time{}
	all := g.L.KindRange(codec.KindDue)
	first, err := g.Tx.Snapshot().GetRange(all, kv.RangeOptions{Limit: 1}).Get()
	if err == nil && len(first) == 0 {
		g.cache.quietUntil = codec.Forever
	} else if err == nil {
		g.cache.quietUntil, _ = g.L.DueTime(first[0].Key)
	}
	return head
}
