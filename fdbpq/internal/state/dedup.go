package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Dedup is what the pushes of one queue know of their message ids and unique keys. A nil *Dedup is
// for pushes without any.
type Dedup struct {
	MsgIDs  map[string]*DedupRead
	Uniques map[string]*DedupRead
	Over    kv.Future[[]kv.KeyValue] // entries of ids that are over; nil without message ids
	Window  time.Duration            // how long a message id is remembered; 0 or less is not at all
}

// LoadUniques finds out which unique keys are taken, and by which jobs. Whether their items are
// there is read without conflict: a transaction that removes one writes the unique key as well.
func (d *Dedup) LoadUniques(snapshot kv.Reader, l *codec.Layout) error {
	for _, read := range d.Uniques {
		if err := read.Parse(codec.ParseUnique); err != nil {
			return err
		}

		if read.Found {
			read.place = read.Seen.ID
			read.item = LookUp(l, snapshot, &read.Seen.ID)
			if codec.Moved(&read.Seen.ID) {
				read.rest = BeginItem(l, snapshot, &read.Seen.ID, Beginning)
			}
		}
	}

	for _, read := range d.Uniques {
		if !read.Found {
			continue
		}

		var err error
		if read.Found, err = read.item.Exists(); err != nil {
			return err
		}
		if read.Found && codec.Moved(&read.place) {
			if err := read.rest.ReadHeaders(snapshot, l); err != nil {
				return err
			}
			read.Seen.ID = read.rest.Item.Job() // its place if the job cannot be read
		}
	}

	return nil
}

// First returns the id of the job that a push duplicates, nil if there is none. The message id
// takes precedence over the unique key.
func (d *Dedup) First(m *codec.Message) *codec.ID {
	if d == nil {
		return nil
	}
	for _, r := range [...]*DedupRead{d.MsgIDs[m.MsgID], d.Uniques[m.Unique]} {
		if r != nil && r.Found {
			return &r.Seen.ID
		}
	}
	return nil
}

// OnlyNew returns the pushes of a group that duplicate neither earlier pushes nor each other.
// pushed returns their messages.
func (d *Dedup) OnlyNew(group []int, pushed func(i int) *codec.Message) (added []int) {
	if d == nil {
		return group
	}

	msgIDs, uniques := map[string]bool{}, map[string]bool{}
	for _, i := range group {
		m := pushed(i)
		if d.First(m) != nil || msgIDs[m.MsgID] || uniques[m.Unique] {
			continue
		}

		added = append(added, i)
		msgIDs[m.MsgID] = m.MsgID != "" && d.Window > 0
		uniques[m.Unique] = m.Unique != ""
	}

	return added
}

// Pushed records a push, for later ones in this transaction and in others. The id is that of the
// job and of its place. The ledger writes the unique key.
func (d *Dedup) Pushed(g *Ledger, id *codec.ID, m *codec.Message) {
	if d == nil {
		return
	}

	if r := d.Uniques[m.Unique]; r != nil {
		r.Seen, r.place, r.Found = codec.Seen{ID: *id}, *id, true
	}

	r := d.MsgIDs[m.MsgID]
	if r == nil || d.Window <= 0 {
		return
	}

	if !r.Seen.Until.IsZero() { // the id was pushed before, and that is over
		g.Tx.Clear(g.L.MsgIDEndKey(r.Seen.Until, m.MsgID))
	}

	r.Seen, r.Found = codec.Seen{ID: *id, Until: g.Now.Add(d.Window)}, true
	g.setMsgID(m.MsgID, &r.Seen)
}

// Forget has the pushes that follow take no item with a unique key for a duplicate of one that has
// left the queue.
func (d *Dedup) Forget(gone *codec.Record) {
	if d == nil {
		return
	}
	if r := d.Uniques[gone.Unique]; r != nil && r.place == gone.ID {
		r.Found = false
	}
}

// RemoveOver removes message ids that are over. Ids that this transaction has pushed again have
// other values, and stay.
func (d *Dedup) RemoveOver(g *Ledger) error {
	if d == nil || d.Over == nil {
		return nil
	}
	entries, err := d.Over.Get()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		g.RemoveMsgID(entry)
	}
	return nil
}

// RemoveMsgID removes a message id that is over, given its entry. If the entry cannot be read, only
// the entry goes.
func (g *Ledger) RemoveMsgID(entry kv.KeyValue) {
	if _, msgID, err := g.L.ParseMsgIDEnd(entry.Key); err == nil {
		g.Tx.CompareAndClear(g.L.MsgIDKey(msgID), entry.Value)
	}
	g.Tx.Clear(entry.Key)
	g.wrote = true
}

// setMsgID writes a message id.
func (g *Ledger) setMsgID(msgID string, s *codec.Seen) {
	value := s.Encode()
	g.Tx.Set(g.L.MsgIDKey(msgID), value)
	g.Tx.Set(g.L.MsgIDEndKey(s.Until, msgID), value)
	g.Upcoming.Over = codec.Earliest(g.Upcoming.Over, codec.Micros(s.Until)) // as noteDue
	g.wrote = true
}

// DedupRead is a message id or a unique key being read.
type DedupRead struct {
	Value kv.Future[[]byte]
	Seen  codec.Seen
	Found bool  // the key is there, and the item that it names
	Err   error // ErrCorrupt

	place codec.ID // of the item that a unique key names
	item  Lookup   // that item
	rest  ItemRead // what else belongs to it, if it has moved
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
