package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A push with a Message.MsgID is done once within a time, Settings.DuplicateWindow, and one with a
// Message.Unique as long as no other item with that key is in the queue, in whatever state. A
// second push is a duplicate: it changes nothing, and results in the id of the first. This takes
//
//	("d", msg id)        = (priority, count, random, until)
//	("e", until, msg id) = the same: the ids in the order in which they are over
//	("u", unique key)    = (priority, count, random)
//
// with until in microseconds since 1970, and priority 0 in a FIFO queue. The numbers are the id of
// the item.
//
// A push reads the keys of its own ids with conflict, so of concurrent pushes with the same one only
// one commits, through whichever bridges they come, and others do not conflict. It decides by until,
// never by whether something has been removed.
//
// # Message ids
//
// What is over is removed by later pushes with ids, a few at a time, by Sweep, and by Retire. It is not in the
// time index, because nothing changes at that time that a pop could see. Each entry has the value of
// its key, so that removing both takes no read of the key and no conflict: the key is removed if it
// still has that value. A later push of the same id has a later until.
//
// # Unique keys
//
// The ledger writes the key with its item, and removes it when the item leaves the queue. It removes
// it without a read, if it still names that item. Records of held items contain their key, because an
// acknowledgement does not read the item, and so do the entries of items that expire. Programs that pop with
// the bare recipe leave keys behind, so a key without an item means nothing.
//
// An item that moves to another priority, with another id, takes its unique key and its message id along.
//
// A popped item that nobody received gets its key back, unless another item has it by then.

const (
	kindMsgID    = "d"
	kindMsgIDEnd = "e"
	kindUnique   = "u"
)

// MaxKey is the longest Message.MsgID and Message.Unique, in bytes.
const MaxKey = 512

func (l *layout) msgIDKey(msgID string) []byte {
	return tuple.AppendBytes(l.key(kindMsgID, len(msgID)+8), []byte(msgID))
}

func (l *layout) msgIDEndKey(until time.Time, msgID string) []byte {
	key := tuple.AppendInt(l.key(kindMsgIDEnd, len(msgID)+16), until.UnixMicro())
	return tuple.AppendBytes(key, []byte(msgID))
}

func (l *layout) uniqueKey(key string) []byte {
	return tuple.AppendBytes(l.key(kindUnique, len(key)+8), []byte(key))
}

// encodeID returns the value of a unique key.
func encodeID(id *ID) []byte {
	b := tuple.AppendInt(make([]byte, 0, 64), id.Priority)
	b = tuple.AppendInt(b, id.Count)
	return tuple.AppendBytes(b, id.Random[:])
}

// decodeID reads what encodeID wrote, and returns what follows it.
func decodeID(data []byte) (id ID, rest []byte, err error) {
	var random []byte
	if id.Priority, rest, err = tuple.DecodeInt(data); err == nil {
		if id.Count, rest, err = tuple.DecodeInt(rest); err == nil {
			random, rest, err = tuple.DecodeBytes(rest)
		}
	}
	if err != nil || len(random) != randomSize {
		return id, nil, fmt.Errorf("%w: item id %x", ErrCorrupt, data)
	}
	copy(id.Random[:], random)
	return id, rest, nil
}

// seen is a message id that was pushed.
type seen struct {
	id    ID // of the item
	until time.Time
}

func (s *seen) encode() []byte { return tuple.AppendInt(encodeID(&s.id), s.until.UnixMicro()) }

func parseSeen(data []byte) (seen, error) {
	id, rest, err := decodeID(data)
	if err != nil {
		return seen{}, err
	}
	until, rest, err := tuple.DecodeInt(rest)
	if err != nil || len(rest) > 0 {
		return seen{}, fmt.Errorf("%w: message id: value %x", ErrCorrupt, data)
	}
	return seen{id, time.UnixMicro(until)}, nil
}

// dedup is what the pushes of one queue with message ids or unique keys have read and written.
type dedup struct {
	msgIDs  map[string]*dedupRead
	uniques map[string]*dedupRead
	over    kv.Future[[]kv.KeyValue] // entries of ids that are over; nil without message ids
	window  time.Duration
}

// dedupRead is a key.
type dedupRead struct {
	value  kv.Future[[]byte]
	exists occupied // where the item of a unique key may be
	seen   seen
	found  bool
	err    error // ErrCorrupt
}

// overPage is how many ids that are over a push removes for each id that it adds.
const overPage = 2

// beginDedup starts to read what the pushes need. It does nothing, and returns nil, if none has a message id or
// unique key.
func (t *txOps) beginDedup(q *queueOps, snapshot kv.Reader) *dedup {
	var d *dedup
	for _, i := range q.pushes {
		m := &t.ops[i].Message
		if m.MsgID == "" && m.Unique == "" || t.results[i].Err != nil {
			continue
		}
		if d == nil {
			d = &dedup{msgIDs: map[string]*dedupRead{}, uniques: map[string]*dedupRead{}}
		}
		if m.MsgID != "" && d.msgIDs[m.MsgID] == nil {
			d.msgIDs[m.MsgID] = &dedupRead{value: t.tx.Get(q.l.msgIDKey(m.MsgID))}
		}
		if m.Unique != "" && d.uniques[m.Unique] == nil {
			d.uniques[m.Unique] = &dedupRead{value: t.tx.Get(q.l.uniqueKey(m.Unique))}
		}
	}
	if d != nil && len(d.msgIDs) > 0 {
		d.over = snapshot.GetRange(q.l.overRange(t.now), kv.RangeOptions{Limit: overPage * len(d.msgIDs)})
	}
	return d
}

// rereadUniques reads the unique keys again, since what was due may have freed some.
func (d *dedup) rereadUniques(tx kv.Reader, l *layout) {
	for key, read := range d.uniques {
		read.value = tx.Get(l.uniqueKey(key))
	}
}

// loadDedup waits for what begin started, and fails the pushes whose keys cannot be read. The error is one of
// the store.
func (t *txOps) loadDedup(q *queueOps) error {
	d := q.dedup
	if d == nil {
		return nil
	}
	var unreadable error
	if d.over != nil {
		settings, err := q.ledger.settings()
		if unlessCorrupt(err) != nil {
			return err
		}
		if unreadable = err; err == nil {
			d.window = settings.Window()
		}
	}
	for _, read := range d.msgIDs {
		if err := read.parse(parseSeen); err != nil {
			return err
		}
		read.found = read.found && read.seen.until.After(t.now)
	}
	if err := d.loadUniques(t.tx.Snapshot(), q.l); err != nil {
		return err
	}
	if q.due.behind() {
		if err := d.freeExpired(&q.ledger); err != nil {
			return err
		}
	}
	for _, i := range q.pushes {
		m, result := &t.ops[i].Message, &t.results[i]
		if m.MsgID != "" && result.Err == nil {
			result.Err = unreadable
			if err := d.msgIDs[m.MsgID].err; err != nil {
				result.Err = err
			}
		}
		if m.Unique != "" && result.Err == nil {
			result.Err = d.uniques[m.Unique].err
		}
	}
	return nil
}

// parse reads the value of a key. The error is one of the store.
func (r *dedupRead) parse(parse func([]byte) (seen, error)) error {
	value, err := r.value.Get()
	if value == nil || err != nil {
		return err
	}
	r.seen, r.err = parse(value)
	r.found = r.err == nil
	return nil
}

// loadUniques finds out which unique keys are taken. That the items are there is read without
// conflict: whoever removes one writes its key, too.
func (d *dedup) loadUniques(snapshot kv.Reader, l *layout) error {
	for _, read := range d.uniques {
		if err := read.parse(parseUnique); err != nil {
			return err
		}
		if read.found {
			read.exists = l.readOccupied(snapshot, &read.seen.id)
		}
	}
	for _, read := range d.uniques {
		if !read.found {
			continue
		}
		var err error
		if read.found, err = read.exists.any(); err != nil {
			return err
		}
	}
	return nil
}

// freeExpired removes items that have a unique key and have expired, where there was no room for all that is due. The
// error is one of the store.
func (d *dedup) freeExpired(g *ledger) error {
	for _, read := range d.uniques {
		if !read.found {
			continue
		}
		id := &read.seen.id
		found := heldRead{held: read.exists.held, item: read.exists.item}
		h, err := found.anywhere(id)
		if unlessCorrupt(err) != nil {
			return err
		}
		if h == nil || err != nil {
			continue
		}
		if h.ready {
			whole := g.l.beginWhole(g.tx.Snapshot(), id)
			if h.expires, h.unique, err = whole.lasting(); err != nil {
				return err
			}
		}
		if !h.hasExpired(g.now) {
			continue
		}
		read.found = false
		g.tx.AddReadConflict(kv.SingleKey(g.l.itemKey(id)))
		g.tx.AddReadConflict(kv.SingleKey(g.l.heldKey(id)))
		g.claim(h)
		g.expireLent(h.held)
	}
	return nil
}

func parseUnique(data []byte) (seen, error) {
	id, rest, err := decodeID(data)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: unique key: value %x", ErrCorrupt, data)
	}
	return seen{id: id}, err
}

// first returns the item that a push is a duplicate of, nil if it is none. The message id comes first.
func (d *dedup) first(m *Message) *ID {
	if d == nil {
		return nil
	}
	if r := d.msgIDs[m.MsgID]; r != nil && r.found {
		return &r.seen.id
	}
	if r := d.uniques[m.Unique]; r != nil && r.found {
		return &r.seen.id
	}
	return nil
}

// onlyNew returns those of a group of pushes that are no duplicates, of earlier ones or of each other.
func (d *dedup) onlyNew(ops []Op, group []int) (added []int) {
	if d == nil {
		return group
	}
	msgIDs, uniques := map[string]bool{}, map[string]bool{}
	for _, i := range group {
		m := &ops[i].Message
		if d.first(m) != nil || msgIDs[m.MsgID] || uniques[m.Unique] {
			continue
		}
		added = append(added, i)
		if m.MsgID != "" && d.window > 0 {
			msgIDs[m.MsgID] = true
		}
		if m.Unique != "" {
			uniques[m.Unique] = true
		}
	}
	return added
}

// pushed records a push for those that come after it, here and later. The ledger writes the unique
// key.
func (d *dedup) pushed(g *ledger, id *ID, m *Message) {
	if d == nil {
		return
	}
	if r := d.uniques[m.Unique]; r != nil {
		r.seen, r.found = seen{id: *id}, true
	}
	r := d.msgIDs[m.MsgID]
	if r == nil || d.window <= 0 {
		return
	}
	if !r.seen.until.IsZero() { // over
		g.tx.Clear(g.l.msgIDEndKey(r.seen.until, m.MsgID))
	}
	r.seen, r.found = seen{*id, g.now.Add(d.window)}, true
	g.setMsgID(m.MsgID, &r.seen)
}

// removeOver removes ids that are over. What this transaction has pushed has other values.
func (d *dedup) removeOver(g *ledger) error {
	if d == nil || d.over == nil {
		return nil
	}
	entries, err := d.over.Get()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		g.l.removeMsgID(g.tx, entry)
		g.wrote = true
	}
	return nil
}

// overRange is the range of the entries of message ids that are over.
func (l *layout) overRange(now time.Time) kv.Range { return l.timesUpTo(kindMsgIDEnd, now) }

// removeMsgID removes a message id that is over, given its entry. An entry that cannot be read goes alone.
func (l *layout) removeMsgID(tx kv.Transaction, entry kv.KeyValue) {
	if _, msgID, err := l.parseMsgIDEnd(entry.Key); err == nil {
		tx.CompareAndClear(l.msgIDKey(msgID), entry.Value)
	}
	tx.Clear(entry.Key)
}

func (l *layout) parseMsgIDEnd(key []byte) (until time.Time, msgID string, err error) {
	micros, rest, err := tuple.DecodeInt(key[len(l.prefix)+kindSize:])
	if err != nil {
		return until, "", err
	}
	id, _, err := tuple.DecodeBytes(rest)
	return time.UnixMicro(micros), string(id), err
}

// keepUnique writes the unique key of an item that is added.
func (g *ledger) keepUnique(id *ID, m *Message) {
	if m.Unique != "" {
		g.tx.Set(g.l.uniqueKey(m.Unique), encodeID(id))
	}
}

// freeUnique removes the unique key of an item that leaves the queue, if it is still that item's.
func (g *ledger) freeUnique(id *ID, key string) {
	if key != "" {
		g.tx.CompareAndClear(g.l.uniqueKey(key), encodeID(id))
	}
}

// moveMsgID makes the message id of an item that moves name its new id, unless that is over. The error is one
// of the store; a value that cannot be read stays.
func (g *ledger) moveMsgID(from, to *ID, msgID string) error {
	if msgID == "" {
		return nil
	}
	value, err := g.tx.Get(g.l.msgIDKey(msgID)).Get()
	if value == nil || err != nil {
		return err
	}
	s, err := parseSeen(value)
	if err != nil || s.id != *from {
		return nil
	}
	s.id = *to
	g.setMsgID(msgID, &s)
	return nil
}

// setMsgID writes a message id.
func (g *ledger) setMsgID(msgID string, s *seen) {
	value := s.encode()
	g.tx.Set(g.l.msgIDKey(msgID), value)
	g.tx.Set(g.l.msgIDEndKey(s.until, msgID), value)
	g.ahead.Over = earliest(g.ahead.Over, s.until)
	g.wrote = true
}

// takenUnique reports whether another item has got the key of an item that is to be restored.
func (g *ledger) takenUnique(item *Item) (bool, error) {
	if item.Unique == "" {
		return false, nil
	}
	read := &dedupRead{value: g.tx.Get(g.l.uniqueKey(item.Unique))}
	d := dedup{uniques: map[string]*dedupRead{item.Unique: read}}
	err := d.loadUniques(g.tx.Snapshot(), g.l)
	return read.found || read.err != nil, err
}

// withoutUnique returns the item without its unique key.
func (i *Item) withoutUnique() (*Item, error) {
	bare := *i
	bare.Unique = ""
	if o := i.origin; o != nil && o.past != nil {
		past, err := parseHistory(&i.ID, o.past)
		if err != nil {
			return nil, err
		}
		past.unique = ""
		bare.origin = &origin{value: o.value, past: past.encode()}
	}
	return &bare, nil
}

// dedupSize is about how many bytes the keys of a message id and unique key take in a transaction, with their
// conflict ranges.
func (l *layout) dedupSize(m *Message) (size int) {
	const value = 64
	if m.MsgID != "" {
		// Read, written twice, and others removed.
		size += (1 + 2*3 + overPage*2*3) * (len(l.prefix) + textSize(m.MsgID) + value)
	}
	if m.Unique != "" {
		size += (1 + 3) * (len(l.prefix) + textSize(m.Unique) + value)
	}
	return size
}
