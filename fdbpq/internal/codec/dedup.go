package codec

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
// with until in microseconds since 1970, and the id of the item, with priority 0 in a FIFO queue.
//
// A push reads the keys of its own ids with conflict, so of concurrent pushes with the same one
// only one commits, through whichever bridges they come, and others do not conflict. It decides by
// until, never by whether something has been removed.
//
// Message ids that are over are removed by later pushes with ids, a few at a time, by Sweep, and by
// Retire. They are not in the time index, because nothing changes then that a pop could see. Each
// entry has the value of its key, and the key is removed if it still has that value, which takes no
// read and no conflict. A later push of the same id has a later until.
//
// The ledger writes the unique key with its item, and when the item leaves the queue removes it, if
// it still names that item, without a read. So records of held items contain it, and so do the
// entries of items that expire. Programs that pop with the bare recipe leave keys behind, so a key
// without an item means nothing. A popped item that nobody received gets its key back, unless
// another item has it by then.
//
// An item that moves to another priority, with another id, takes both along.

const (
	KindMsgID    = "d"
	KindMsgIDEnd = "e"
	KindUnique   = "u"
)

// MaxKey is the longest Message.MsgID and Message.Unique, in bytes.
const MaxKey = 512

func (l *Layout) MsgIDKey(msgID string) []byte {
	return tuple.AppendBytes(l.Key(KindMsgID, len(msgID)+8), []byte(msgID))
}

func (l *Layout) MsgIDEndKey(until time.Time, msgID string) []byte {
	key := tuple.AppendInt(l.Key(KindMsgIDEnd, len(msgID)+16), until.UnixMicro())
	return tuple.AppendBytes(key, []byte(msgID))
}

func (l *Layout) UniqueKey(key string) []byte {
	return tuple.AppendBytes(l.Key(KindUnique, len(key)+8), []byte(key))
}

// EncodeID returns the value of a unique key.
func EncodeID(id *ID) []byte {
	b := tuple.AppendInt(make([]byte, 0, 64), id.Priority)
	b = tuple.AppendInt(b, id.Count)
	return tuple.AppendBytes(b, id.Random[:])
}

// Seen is a message id that was pushed.
type Seen struct {
	ID    ID // of the item
	Until time.Time
}

func (s *Seen) Encode() []byte { return tuple.AppendInt(EncodeID(&s.ID), s.Until.UnixMicro()) }

func ParseSeen(data []byte) (Seen, error) {
	d := decoder{rest: data}
	s := Seen{ID: d.id(), Until: d.time()}
	if err := d.end(); err != nil {
		return Seen{}, fmt.Errorf("%w: message id: value %x: %w", ErrCorrupt, data, err)
	}
	return s, nil
}

// ParseUnique returns the item of a unique key.
func ParseUnique(data []byte) (Seen, error) {
	d := decoder{rest: data}
	s := Seen{ID: d.id()}
	if err := d.end(); err != nil {
		return Seen{}, fmt.Errorf("%w: unique key: value %x: %w", ErrCorrupt, data, err)
	}
	return s, nil
}

// OverPage is how many ids that are over a push removes for each id that it adds.
const OverPage = 2

// OverRange is the range of the entries of message ids that are over.
func (l *Layout) OverRange(now time.Time) kv.Range { return l.timesUpTo(KindMsgIDEnd, now) }

func (l *Layout) ParseMsgIDEnd(key []byte) (until time.Time, msgID string, err error) {
	d := decoder{rest: l.Place(key)}
	until, msgID = d.time(), string(d.bytes())
	return until, msgID, d.err
}

// WithoutUnique returns the item without its unique key.
func WithoutUnique(i *Item) (*Item, error) {
	bare := *i
	bare.Unique = ""
	if k := KeptOf(i); k != nil && k.Past != nil {
		past, err := ParseHistory(&i.ID, k.Past)
		if err != nil {
			return nil, err
		}
		past.Unique = ""
		KeepFor(&bare, &Kept{Value: k.Value, Past: past.Encode()})
	}
	return &bare, nil
}

// DedupSize is about how many bytes the keys of a message id and unique key take in a transaction,
// with their conflict ranges.
func (l *Layout) DedupSize(m *Message) (size int) {
	const value = 64
	if m.MsgID != "" {
		// Read, written twice, and others removed.
		size += (1 + 2*3 + OverPage*2*3) * (len(l.Prefix) + textSize(m.MsgID) + value)
	}
	if m.Unique != "" {
		size += (1 + 3) * (len(l.Prefix) + textSize(m.Unique) + value)
	}
	return size
}
