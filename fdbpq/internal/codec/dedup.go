package codec

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A push is a duplicate if its Message.MsgID was pushed within Settings.DuplicateWindow, or if
// another item in the queue, in whatever state, has its Message.Unique. A duplicate changes
// nothing, and its result is the id of the first job. This takes the keys
//
//	("d", msg id)        = (priority, count, random, until)
//	("e", until, msg id) = the same: the message ids in the order in which they are over
//	("u", unique key)    = (priority, count, random)
//
// A message id has the id of the job, a unique key the place of its item, with the priority 0 in a
// FIFO queue, and until is in microseconds since 1970. A message id stays in the queue of its push
// as it is, whatever becomes of the job.
//
// A push reads the keys of its own ids with conflict. So of concurrent pushes with the same id only
// one commits, on whichever bridges, and others do not conflict. A push goes by until, never by
// whether a key has been removed.
//
// Message ids that are over are removed by later pushes with ids, a few at a time, by Sweep, and by
// Retire. They are not in the time index, because their end changes nothing that a pop could see.
// The entry ("e") has the value of the key ("d"), and the key is removed if it still has that
// value, which takes no read and no conflict: a later push of the same id has a later until.
//
// The ledger writes the unique key with its item. When the item leaves the queue, it removes the
// key if that still names the item, without a read. So records of held items and entries of items
// that expire contain the unique key. Programs that pop with the bare recipe leave keys behind, so
// a key without an item means nothing. A popped item that nobody received gets its key back, unless
// another item has it.
//
// An item that moves to another priority takes its unique key along.

// Kinds of the keys of duplicates.
const (
	KindMsgID    = "d"
	KindMsgIDEnd = "e"
	KindUnique   = "u"
)

// MaxKey is the longest Message.MsgID and Message.Unique, in bytes.
const MaxKey = 512

// MsgIDKey is the key of a message id.
func (l *Layout) MsgIDKey(msgID string) []byte {
	return tuple.AppendBytes(l.Key(KindMsgID, len(msgID)+8), []byte(msgID))
}

// MsgIDEndKey is the entry of a message id that is over at a time.
func (l *Layout) MsgIDEndKey(until time.Time, msgID string) []byte {
	key := tuple.AppendInt(l.Key(KindMsgIDEnd, len(msgID)+16), until.UnixMicro())
	return tuple.AppendBytes(key, []byte(msgID))
}

// UniqueKey is the key of a unique key.
func (l *Layout) UniqueKey(key string) []byte {
	return tuple.AppendBytes(l.Key(KindUnique, len(key)+8), []byte(key))
}

// EncodeID returns the value of a unique key.
func EncodeID(id *ID) []byte {
	return appendPlace(tuple.AppendInt(make([]byte, 0, 64), id.Priority), id)
}

// Seen is a message id or a unique key that was pushed.
type Seen struct {
	ID    ID        // of the job of a message id; of the place of the item of a unique key
	Until time.Time // when a message id is over
}

// Encode returns the value of a message id's key and entry.
func (s *Seen) Encode() []byte { return tuple.AppendInt(EncodeID(&s.ID), s.Until.UnixMicro()) }

// ParseSeen reads what Encode wrote.
func ParseSeen(data []byte) (Seen, error) {
	d := decoder{rest: data}
	return finish(&d, Seen{ID: d.id(), Until: d.time()}, "message id: value", data)
}

// ParseUnique reads the value of a unique key.
func ParseUnique(data []byte) (Seen, error) {
	d := decoder{rest: data}
	return finish(&d, Seen{ID: d.id()}, "unique key: value", data)
}

// OverPage is how many message ids that are over a push removes for each id that it adds.
const OverPage = 2

// OverRange is the range of the entries of message ids that are over.
func (l *Layout) OverRange(now time.Time) kv.Range { return l.timesUpTo(KindMsgIDEnd, now) }

// ParseMsgIDEnd reads the key of an entry.
func (l *Layout) ParseMsgIDEnd(key []byte) (until time.Time, msgID string, err error) {
	d := decoder{rest: l.Place(key)}
	until, msgID = d.time(), string(d.bytes())
	return until, msgID, d.err
}

// WithoutUnique returns the item without its unique key.
func WithoutUnique(i *Item) (*Item, error) {
	bare := *i
	bare.Unique = ""
	if data := RestoreDataOf(i); data != nil && data.Past != nil {
		past, err := ParseHistory(&i.ID, data.Past)
		if err != nil {
			return nil, err
		}
		past.Unique = ""
		SetRestoreData(&bare, &RestoreData{Value: data.Value, Past: past.Encode()})
	}
	return &bare, nil
}

// DedupSize is about how many bytes the keys of a message id and a unique key take in a
// transaction, with their conflict ranges.
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
