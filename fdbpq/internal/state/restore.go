package state

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Shrinking is a store for transactions that remove items or put them back. They must go on when
// the disk is nearly full: the receipt or claim of a pop can be larger than the item that it
// removes, and no pop runs before popped items are back.
type Shrinking struct{ kv.Database }

// Begin implements kv.Database.
func (s Shrinking) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	o.Shrinks = true
	return s.Database.Begin(ctx, o)
}

// RestoreOverhead is about how many bytes restoring an item takes in a transaction besides its keys
// and values: conflict ranges and counters. Long keys take more.
const RestoreOverhead = 500

// TakenItem is an item that an operation took, and its queue.
type TakenItem struct {
	L *codec.Layout
	*codec.Item
}

// Taken returns the item with all that it takes to restore it, which for most items is nothing
// else. past is its history as stored.
func (s *ItemRead) Taken(l *codec.Layout, past []byte) TakenItem {
	switch {
	case !codec.Ours(&s.Item.ID):
		codec.SetRestoreData(&s.Item, &codec.RestoreData{Value: s.Pair.Value, Past: past})
	case past != nil:
		codec.SetRestoreData(&s.Item, &codec.RestoreData{Past: past})
	}
	return TakenItem{L: l, Item: &s.Item}
}

// RestoreSize is about the number of bytes that restoring the item takes in a transaction.
func (i *TakenItem) RestoreSize() int {
	n := i.Size() + len(i.L.Prefix) + RestoreOverhead
	if codec.Moved(&i.ID) {
		n += i.L.AliasSize()
	}
	return n
}

// Restore returns a popped item to its old place, as it was stored, with its history and, if it had
// moved, its alias. It lists the queue, which may have left the list of queues meanwhile. An item
// that has expired stays away, and one whose unique key belongs to another item by now returns
// without it. The error is ErrCorrupt, and then nothing has changed, or one of the store.
func (g *Ledger) Restore(item *codec.Item) error {
	if codec.Expired(item.Expires, g.Now) {
		g.SideEffects.Expired++
		return nil
	}

	if taken, err := g.takenUnique(item.Unique); err != nil {
		return err
	} else if taken {
		if item, err = codec.WithoutUnique(item); err != nil {
			return err
		}
	}

	// Retire may have taken the queue off the list since the pop.
	g.AddToList()
	g.cache.forgetCounts()
	data := codec.RestoreDataOf(item)
	if item.Joiner != nil { // its pop has ended it for its join
		bare := *item
		bare.Joiner, item = nil, &bare
	}

	// What another program wrote goes back byte for byte.
	if data != nil && !codec.Ours(&item.ID) {
		g.Attach(&item.ID, data.Value)
	} else {
		g.Add(&item.ID, &item.Message)
	}

	if data != nil && data.Past != nil {
		g.SetHistory(&item.ID, data.Past)
	}
	return nil
}

// BeginReturn starts to read what ReturnStaged needs. A staged pop takes an item whose headers
// nobody has read yet. If nobody collects it, it returns to the queue, where its expiry and its
// unique key count again. Meanwhile its entry of the time index may have fallen due, without an
// item to remove, and another item may have got its unique key.
func (g *Ledger) BeginReturn(id *codec.ID) *ItemRead {
	s := BeginItem(g.L, g.Tx.Snapshot(), id, Beginning)
	return &s
}

// ReturnStaged returns an item to its old place, with its value as it was stored. One that has
// expired stays away, and one whose unique key belongs to another item by now returns without it.
// The error is one of the store.
func (g *Ledger) ReturnStaged(s *ItemRead, value []byte) error {
	id := &s.Item.ID
	lasts, err := s.Lasting()
	if err != nil {
		return err
	}

	if codec.Expired(lasts.Expires, g.Now) {
		past, err := ReadHistory(g.L, g.Tx, id).Get()
		if err != nil {
			return err
		}
		h := RecordOf(id, past)
		h.Lasting, h.Value = lasts, value
		g.ClearHistory(id, past)
		g.ClearExpiry(id, lasts.Expires)
		g.ReuseMeta(s)
		g.DeleteExpired(h)
		return nil
	}

	taken, err := g.takenUnique(lasts.Unique)
	if err != nil {
		return err
	}

	g.cache.forgetCounts()
	if taken {
		return g.returnWithoutUnique(s, value)
	}

	g.keepUnique(id, lasts.Unique)
	g.Attach(id, value)
	g.SetExpiry(id, lasts)
	return nil
}

// returnWithoutUnique returns an item whose unique key belongs to another one.
func (g *Ledger) returnWithoutUnique(s *ItemRead, value []byte) error {
	id, m := &s.Item.ID, &s.Item.Message
	past, err := ReadHistory(g.L, g.Tx, id).Get()
	if err != nil {
		return err
	}

	if err := s.Load(g.Tx, g.L, value, true); err != nil {
		return err
	}

	h, err := codec.ParseHistory(id, past)
	if err != nil {
		return err
	}

	// Its ("m") keys and its history name the unique key, so both are written anew.
	without := *m
	without.Unique, h.Unique = "", ""
	g.rewrite(&codec.Record{ID: *id}, s, &without)
	if past != nil {
		g.SetHistory(id, h.Encode())
	}
	return nil
}

// takenUnique reports whether another item has the unique key of an item that returns.
func (g *Ledger) takenUnique(key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	d, err := g.ReadUnique(key)
	return d.Uniques[key].Found || d.Uniques[key].Err != nil, err
}

// ReadUnique finds out whether an item has a unique key.
func (g *Ledger) ReadUnique(key string) (*Dedup, error) {
	d := &Dedup{Uniques: map[string]*DedupRead{key: {Value: g.Tx.Get(g.L.UniqueKey(key))}}}
	return d, d.LoadUniques(g.Tx.Snapshot(), g.L)
}

// Purge removes all items, however many, and returns how many there were by the counters. The
// caller must have flushed all ledgers of the queue. Purge clears ranges, so it also removes what
// other programs left there. Message ids stay until their window is over. Items that staged pops
// have yet to collect go as well, uncounted: those pops then stand in line again.
//
// Purge conflicts with everything that changes the number of items. Other changes that commit while
// it runs are to items that it removes, and go with them. The error is ErrManyRates or ErrJoins,
// and then nothing has changed, or one of the store.
func (g *Ledger) Purge() (items int64, err error) {
	for _, counter := range g.BeginLoad()[:1+len(codec.HeldStates)] { // without that of bytes
		n, err := ReadCounter(counter)
		if codec.UnlessCorrupt(err) != nil {
			return 0, err
		}
		items += n
	}

	entries, err := g.dueBesideItems()
	if err != nil {
		return 0, err
	}

	if err := g.endMembers(); err != nil {
		return 0, err
	}

	// The time index goes with the items, so the other entries are written again.
	for _, kind := range codec.ItemKinds {
		g.Tx.ClearRange(g.L.AllOf(kind))
	}
	for _, part := range []int64{codec.PartAnswer, codec.PartValue} {
		g.Tx.ClearRange(codec.Within(g.L.PartPrefix(part)))
	}

	for _, entry := range entries {
		g.Tx.Set(entry, []byte{})
	}

	g.Tx.Clear(g.L.BytesKey())
	g.wrote = true
	g.cache.forgetItems()
	clear(g.own)
	return items, nil
}

// dueBesideItems returns the entries of the time index for everything but items. The error is
// ErrManyRates if there are too many, or one of the store.
func (g *Ledger) dueBesideItems() (entries [][]byte, err error) {
	itself := func(key []byte) []byte { return key }
	for _, rows := range []struct {
		keys kv.Range
		of   func(key []byte) []byte      // the key that falls due
		due  func(value []byte) time.Time // zero for what cannot be read
	}{
		{g.L.KindRange(codec.KindSummary), g.L.SummarizedKey, func(value []byte) time.Time {
			return codec.ParseSummary(value).Due
		}},
		{g.L.AllOf(codec.KindBucket), itself, codec.BucketRowDue},
		{codec.Within(g.L.PartPrefix(codec.PartClaim)), itself, func(value []byte) time.Time {
			at, _, _ := codec.ParseClaim(value)
			return at
		}},
	} {
		pairs, err := g.Tx.GetRange(rows.keys, kv.RangeOptions{Limit: MostGroupRows}).Get()
		if err != nil {
			return nil, err
		}

		if len(pairs) == MostGroupRows {
			return nil, codec.ErrManyRates
		}

		for _, pair := range pairs {
			if at := rows.due(pair.Value); !at.IsZero() {
				entries = append(entries, g.L.DueKey(at, rows.of(pair.Key)))
			}
		}
	}

	return entries, nil
}
