package codec

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// An item that is leased or delayed is held: it is not in ("i") but, under the same id, in
//
//	("h", priority, count, random) = record, then the value as it was stored
//
// and returns to its old key. Its ("m") keys stay, and the counter ("n", "leased") or ("n",
// "delayed") counts it. It falls due: see below. Once back in ("i"), it keeps its history in
//
//	("a", priority, count, random) = (deliveries, fence, wait), with (..., reason)
//	                                 or (..., reason, expires, unique key)
//
// The record is a varint, and a tuple of that length: (1, state, deliveries, fence, due, wait,
// end), times in microseconds, or the same with 2 and a reason at its end, or with 3, a reason, the
// time when the item expires, or 0, and its unique key, or "". A lease whose holder gave a name has 4,
// all of that, the name, and when the lease began. The reason is that of the last negative
// acknowledgement that gave one; "" is none.
//
// # Why a late acknowledgement never touches a later delivery
//
// Each lease of an item has a higher fence than all before it, and a token holds the fence of its
// lease. Deliveries cannot serve for that, because some are not counted. An operation with a token
// reads the key of the held item and, unless that is there, the two of the item in the queue. So it
// conflicts with any other move of the item, and does nothing unless the item is there with the
// fence of the token, and was leased.

// Record is an item that is held, or one in ("i") of which only its own keys were read.
type Record struct {
	ID ID
	History
	State   ItemState // Leased or Delayed; Ready in ("i")
	Due     time.Time // end of the lease, or of the delay
	End     End       // that the item was leased from
	Holder  string    // name that the lease was taken with; "" is none
	Since   time.Time // when a lease with a Holder began
	Value   []byte    // as stored
	Dropped int       // bytes of the value that are not in Value any more, but count
	Message *Message  // all of it; nil unless known
}

// History is what is known of an item from its leases.
type History struct {
	Deliveries int64 // so far; of a leased item, this one included
	Fence      int64
	Wait       time.Duration // length of the last lease
	Reason     string        // of a negative acknowledgement
	Lasting
}

// Lasting is what travels with an item through all states. In ("i"), its ("m") keys have it.
type Lasting struct {
	Expires time.Time // when the item expires; zero is never
	Unique  string    // its unique key; "" is none
}

// LastingOf returns what travels with an item of the message.
func LastingOf(m *Message) Lasting { return Lasting{Expires: m.Expires, Unique: m.Unique} }

// none reports whether nothing does.
func (l *Lasting) none() bool { return l.Expires.IsZero() && l.Unique == "" }

// MaxHeldValue is the longest stored value that fits behind a record without a reason. Those of
// this package are shorter, and have room for a reason and a unique key.
const MaxHeldValue = kv.MaxValueSize - maxRecord

// maxRecord is at least the length of a record without a reason, and of its length.
const maxRecord = 100

var ErrCannotHold = fmt.Errorf("%w: another program wrote it, with more than the %d bytes in one key that can be leased: "+
	"want a pop without a lease", ErrItemTooLarge, MaxHeldValue)

// HeldStates are the states of held items, by their number in a record.
var HeldStates = [...]ItemState{Leased, Delayed}

// The first element of a record. Versions of this package that know neither reasons nor what else
// an item may have read records without.
const (
	heldVersion       = 1
	heldVersionReason = 2
	heldVersionEnd    = 3
	heldVersionHolder = 4
)

// holderRoom is what a name takes in a record, at most, beside a reason.
const holderRoom = MaxNakReason + settings.MaxHolder + 16

func (l *Layout) HeldKey(id *ID) []byte { return l.IDKey(KindHeld, id) }

func (l *Layout) HistoryKey(id *ID) []byte { return l.IDKey(KindHistory, id) }

// HeldRange is the range of the held items of one priority.
func (l *Layout) HeldRange(priority int64) kv.Range {
	return Within(l.priorityKey(KindHeld, priority))
}

// StateCounterKey is the key that counts the items in the state of a held item.
func (l *Layout) StateCounterKey(s ItemState) []byte {
	return tuple.AppendString(l.Key(KindCounter, 16), s.String())
}

// Encode returns the value of a held item's key.
func (h *Record) Encode() []byte {
	version := int64(heldVersion)
	switch {
	case h.State == Leased && h.Holder != "":
		version = heldVersionHolder
	case !h.Lasting.none():
		version = heldVersionEnd
	case h.Reason != "":
		version = heldVersionReason
	}

	var room [maxRecord]byte
	record := appendInts(room[:0], version, int64(slices.Index(HeldStates[:], h.State)), h.Deliveries, h.Fence, h.Due.UnixMicro(), h.Wait.Microseconds(), int64(h.End))
	if version >= heldVersionReason {
		record = tuple.AppendBytes(record, []byte(h.Reason))
	}
	if version >= heldVersionEnd {
		record = h.Lasting.appendTo(record)
	}
	if version >= heldVersionHolder {
		record = tuple.AppendInt(tuple.AppendBytes(record, []byte(h.Holder)), h.Since.UnixMicro())
	}

	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(record)+len(h.Value)), uint64(len(record)))
	return append(append(b, record...), h.Value...)
}

// ParseRecord reads what Encode wrote.
func ParseRecord(id *ID, data []byte) (*Record, error) {
	n, used := binary.Uvarint(data)
	if used <= 0 || n > uint64(len(data)-used) {
		return nil, fmt.Errorf("%w: held item %s: length of its record", ErrCorrupt, id)
	}
	record, value := data[used:used+int(n)], data[used+int(n):]

	d := decoder{rest: record}
	version, state := d.int(), d.int()
	h := &Record{ID: *id, Value: value}
	h.Deliveries, h.Fence, h.Due = d.int(), d.int(), time.UnixMicro(d.int())
	wait, end := d.int(), d.int()
	h.Wait, h.End = time.Duration(wait)*time.Microsecond, End(end)
	if version >= heldVersionReason {
		h.Reason = string(d.bytes())
	}
	if version >= heldVersionEnd {
		h.Lasting = d.lasting()
	}
	if version >= heldVersionHolder {
		h.Holder, h.Since = string(d.bytes()), d.time()
	}

	if err := d.end(); err != nil {
		return nil, fmt.Errorf("%w: held item %s: record %x: %w", ErrCorrupt, id, record, err)
	}
	if version < heldVersion || version > heldVersionHolder || state < 0 || state >= int64(len(HeldStates)) ||
		end < int64(Front) || end > int64(Back) || h.Deliveries < 0 || h.Fence < 1 || !isWait(wait) {
		return nil, fmt.Errorf("%w: held item %s: record %x", ErrCorrupt, id, record)
	}
	h.State = HeldStates[state]
	return h, nil
}

// appendTo appends it as it is stored behind a reason.
func (l *Lasting) appendTo(b []byte) []byte {
	micros := int64(0)
	if !l.Expires.IsZero() {
		micros = l.Expires.UnixMicro()
	}
	return tuple.AppendBytes(tuple.AppendInt(b, micros), []byte(l.Unique))
}

// lasting reads what appendTo wrote.
func (d *decoder) lasting() (l Lasting) {
	if micros := d.int(); micros != 0 {
		l.Expires = time.UnixMicro(micros).UTC()
	}
	l.Unique = string(d.bytes())
	return l
}

// Past is its history as it is stored, nil if it was never leased.
func (h *Record) Past() []byte {
	if h.NeverLeased() {
		return nil
	}
	return h.History.Encode()
}

func (h History) Encode() []byte {
	b := appendInts(nil, h.Deliveries, h.Fence, h.Wait.Microseconds())
	lasts := !h.Lasting.none()
	if h.Reason != "" || lasts {
		b = tuple.AppendBytes(b, []byte(h.Reason))
	}
	if lasts {
		b = h.Lasting.appendTo(b)
	}
	return b
}

// ParseHistory returns the zero history for an item without one.
func ParseHistory(id *ID, data []byte) (h History, err error) {
	if data == nil {
		return h, nil
	}

	d := decoder{rest: data}
	h.Deliveries, h.Fence = d.int(), d.int()
	wait := d.int()
	h.Wait = time.Duration(wait) * time.Microsecond
	if d.more() {
		h.Reason = string(d.bytes())
	}
	if d.more() {
		h.Lasting = d.lasting()
	}

	if d.end() != nil || h.Deliveries < 0 || h.Fence < 1 || !isWait(wait) {
		return History{}, fmt.Errorf("%w: history of item %s: %x", ErrCorrupt, id, data)
	}
	return h, nil
}

// isWait reports whether a lease may last that many microseconds. Other versions may have
// another MaxLease.
func isWait(micros int64) bool { return micros > 0 && micros <= settings.MaxDelay.Microseconds() }

// NoteReason keeps the reason of a negative acknowledgement, if it has given one, unless the value
// of another program leaves no room for it.
func (h *Record) NoteReason(reason string) {
	if reason != "" && len(h.Value) <= MaxHeldValue-MaxNakReason {
		h.Reason = CleanText(reason, MaxNakReason)
	}
}

// SetHolder notes who has taken a lease, and when, if the holder gave a name and the value of another
// program leaves room for it.
func (h *Record) SetHolder(name string, now time.Time) {
	if name != "" && len(h.Value) <= MaxHeldValue-holderRoom {
		h.Holder, h.Since = name, now
	}
}

// LeasedSince returns when the lease began. Without a Holder that is unknown if the lease was renewed:
// then it is when it was renewed last.
func (h *Record) LeasedSince() time.Time {
	switch {
	case h.State != Leased:
		return time.Time{}
	case h.Holder != "":
		return h.Since
	}
	return h.Due.Add(-h.Wait)
}

// An item that is pushed with a delay is held from the start, delayed, under its own id. It
// has never been leased, which its record says with no deliveries and firstFence.
// Its place is that of its count, so it comes in before items that are pushed meanwhile.

// firstFence is the fence of an item that was never leased. Any lease has a higher one, or a
// delivery: earlier versions of this package gave it to the first lease as well.
const firstFence = 1

// NewDelayed returns the held item for a push with a delay.
func NewDelayed(id *ID, m *Message, until time.Time, value []byte) *Record {
	// Versions of this package without delayed pushes need a wait.
	return &Record{
		ID: *id, State: Delayed, Due: until, Value: value,
		History: History{Fence: firstFence, Wait: settings.DefaultLease, Lasting: LastingOf(m)},
	}
}

// NeverLeased reports whether a held item was pushed with a delay and not leased since.
func (h *Record) NeverLeased() bool {
	return h.State == Delayed && h.Deliveries == 0 && h.Fence == firstFence
}

// The time index says what falls due in a queue, and when. Each key that falls due has an entry,
// written and removed together with the key:
//
//	("t", due) + (kind, ...) = ""
//
// due is in microseconds since 1970, and (kind, ...) is the key that falls due, without the queue's
// subspace: a held item, or an answer or claim of staged pops. ("x", priority, count, random)
// stands for an item in ("i") that expires, with its unique key as the value: see below.
// ("s", id) is a schedule that fires, and ("p", name) a consumer that goes.
//
// Nothing runs at the due time itself. There is one way back: each transaction that looks at a
// queue reads the index up to now and first handles what is due there, at most due.Page entries, in
// the order in which they fell due. What is left counts as what it was, leased or delayed, and is
// served once it is back; Pending.Behind names its queue, so that a sweeper can go on with OpSweep,
// which takes more at a time. An item that has expired is never served, whether it is removed yet
// or not. An operation that cannot tell yet what its result is, such as a pop that has met nothing
// but expired items, fails with an error that wraps ErrNoRoom: the next transaction goes on where
// this one has ended.
//
// An entry is removed together with its key, or by a transaction that has read that the key is gone
// and conflicts with whoever writes it. Versions of this package before the index leave such
// entries.

// DueKey returns the entry for a key that falls due at the given time.
func (l *Layout) DueKey(at time.Time, key []byte) []byte {
	rest := key[len(l.Prefix):]
	return append(tuple.AppendInt(l.Key(KindDue, 9+len(rest)), at.UnixMicro()), rest...)
}

// DueRange is the range of the entries that are due.
func (l *Layout) DueRange(now time.Time) kv.Range { return l.timesUpTo(KindDue, now) }

// timesUpTo is the range of the keys of a kind that begin with a time in microseconds, up to now.
func (l *Layout) timesUpTo(kind string, now time.Time) kv.Range {
	return kv.Range{Begin: l.KindRange(kind).Begin, End: tuple.AppendInt(l.Key(kind, 9), now.UnixMicro()+1)}
}

// LaterRange is the range of the entries that are not due yet.
func (l *Layout) LaterRange(now time.Time) kv.Range {
	return kv.Range{Begin: l.DueRange(now).End, End: l.KindRange(KindDue).End}
}

// DueTime returns when an entry falls due.
func (l *Layout) DueTime(entry []byte) (time.Time, error) {
	d := decoder{rest: l.Place(entry)}
	at := d.time()
	return at, d.err
}

// An item may expire: Message.Expires, in its ("m") keys, says when. While it is in ("i"), it has
// an entry in the time index, written and removed together with its key in ("i"):
//
//	("t", expires) + ("x", priority, count, random) = unique key
//
// Whoever finds the entry due removes the item, and frees its unique key, without reading the ("m")
// keys. While it is held, its record says when it expires; a delayed item falls due then, at the
// latest. A leased one expires when its lease ends: whoever holds it may still acknowledge it.
// Staged pops, which need not know what they move, leave the entry where it is, and write it again
// if the item comes back: see state.Ledger.ReturnStaged.
//
// A pop, lease or peek that meets an expired item all the same, because its transaction had no room for
// all that was due, fails with ErrNoRoom: the next one goes on with what is due.

// ExpiryKey is the part of an entry of the time index that names an item in ("i"). There is no such
// key.
func (l *Layout) ExpiryKey(id *ID) []byte { return l.IDKey(KindExpiry, id) }

// Expired reports whether something that expires at a time has; zero is never.
func Expired(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// Expired reports whether the time of an item is over. It may be leased.
func (h *Record) Expired(now time.Time) bool { return Expired(h.Expires, now) }

// Gone reports whether an item counts as gone: it has expired, and nobody has a lease of it, which
// may be over.
func (h *Record) Gone(now time.Time) bool { return h.Expired(now) && h.State != Leased }

// FallsDue is when something has to be done about a held item.
func (h *Record) FallsDue() time.Time {
	if h.State == Delayed {
		return Earliest(h.Due, h.Expires)
	}
	return h.Due
}
