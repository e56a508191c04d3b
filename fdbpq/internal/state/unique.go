package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// keepUnique writes the unique key of an item that is added.
func (g *Ledger) keepUnique(id *codec.ID, key string) {
	if key != "" {
		g.Tx.Set(g.L.UniqueKey(key), codec.EncodeID(id))
	}
}

// freeUnique removes the unique key of an item that leaves the queue, if it is still that item's.
func (g *Ledger) freeUnique(id *codec.ID, key string) {
	if key != "" {
		g.Tx.CompareAndClear(g.L.UniqueKey(key), codec.EncodeID(id))
	}
}

// takenUnique reports whether another item has got the unique key of an item that is to be
// restored.
func (g *Ledger) takenUnique(key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	read := DedupRead{Value: g.Tx.Get(g.L.UniqueKey(key))}
	err := loadUniques(g.Tx.Snapshot(), g.L, []*DedupRead{&read})
	return read.Found || read.Err != nil, err
}

// DedupRead is a message id or a unique key, being read.
type DedupRead struct {
	Value kv.Future[[]byte]
	Seen  codec.Seen
	Found bool  // the key is there, and the item that it names
	Err   error // ErrCorrupt

	item Lookup // that a unique key names
}

// Parse waits for the key. The error is one of the store.
func (r *DedupRead) Parse(parse func([]byte) (codec.Seen, error)) error {
	value, err := r.Value.Get()
	if value == nil || err != nil {
		return err
	}
	r.Seen, r.Err = parse(value)
	r.Found = r.Err == nil
	return nil
}

// loadUniques finds out which unique keys are taken. That the items are there is read without
// conflict: whoever removes one writes its key, too.
func loadUniques(snapshot kv.Reader, l *codec.Layout, reads []*DedupRead) error {
	for _, read := range reads {
		if err := read.Parse(codec.ParseUnique); err != nil {
			return err
		}
		if read.Found {
			read.item = LookUp(l, snapshot, &read.Seen.ID)
		}
	}

	for _, read := range reads {
		if !read.Found {
			continue
		}
		var err error
		if read.Found, err = read.item.Exists(); err != nil {
			return err
		}
	}
	return nil
}
