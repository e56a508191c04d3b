package codec

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// An item that is leased or delayed is held. It leaves ("i") and, under the same id, is in
//
//	("h", priority, count, random) = record, then the value as it was stored
//
// Its ("m") keys stay, and the counter ("n", "leased") or ("n", "delayed") counts it. When it
// returns to its old key in ("i"), it keeps its history in
//
//	("a", priority, count, random) = (deliveries, fence, wait, reason, expires, unique key)
//
// The record is a varint, and a tuple of that length:
//
//	(1, state, deliveries, fence, due, wait, end, reason, expires, unique key, holder, since)
//
// and after since the progress, if the holder has said any.
// Times are in microseconds. The last negative acknowledgement with a reason gave the reason. since
// is when a lease began whose holder gave a name, or whose job will be kept. Missing texts are "",
// missing times 0.
//
// # Why a late acknowledgement never touches a later delivery
//
// Each lease of an item has a higher fence than all leases before it, and a token holds the fence
// of its lease. The number of deliveries could not serve for that, because some do not count. An
// operation with a token reads the item's key in ("h") and, if nothing is there, its two keys in
// ("i") and ("a"). So it conflicts with every other move of the item. It does nothing unless the
// item is there, was leased, and has the fence of the token.

// Record is an item that is held, or an item in ("i") that was read only in part: its own keys.
type Record struct {
	ID ID
	History
	State  ItemState // Leased or Delayed; Ready in ("i")
	Due    time.Time // when the lease or the delay ends
	End    End       // the item was leased from here
	Holder string    // the name that the lease was taken with; "" is none
	Since  time.Time // when the lease began, if it has a Holder or its job will be kept
	// Progress is what the holder of the lease has said of the job; "" is nothing.
	Progress string

	Value   []byte   // as stored
	Dropped int      // bytes of the value that were dropped from Value, but count
	Parts   int      // how many ("m") keys the item has; 0 if that is not known
	Message *Message // in full; nil unless known
}

// History is what an item keeps of its leases.
type History struct {
	Deliveries int64 // so far, including the current one
	Fence      int64
	Wait       time.Duration // length of the last lease
	Reason     string        // of the last negative acknowledgement with one
	Lasting
}

// Lasting is what an item keeps through all states. In ("i"), its ("m") keys have it.
type Lasting struct {
	Expires time.Time // when the item expires; zero is never
	Unique  string    // its unique key; "" is none
}

// LastingOf returns what an item of the message keeps through all states.
func LastingOf(m *Message) Lasting { return Lasting{Expires: m.Expires, Unique: m.Unique} }

// maxRecord is at least the length of a record without a reason, with its varint.
const maxRecord = 100

// MaxHeldValue is the longest stored value that fits behind a record without a reason. Values of
// this package are shorter, and leave room for a reason and a unique key.
const MaxHeldValue = kv.MaxValueSize - maxRecord

// ErrCannotHold is for leases of an item with a longer value.
var ErrCannotHold = fmt.Errorf("%w: another program wrote it, with more than the %d bytes in one "+
	"key that can be leased: want a pop without a lease", ErrItemTooLarge, MaxHeldValue)

// HeldStates are the states of held items, by their number in a record.
var HeldStates = [...]ItemState{Leased, Delayed}

// heldVersion is the first element of a record.
const heldVersion = 1

// holderRoom is the most that a name takes in a record, beside a reason.
const holderRoom = MaxNakReason + settings.MaxHolder + 16

// HeldKey is the key of a held item.
func (l *Layout) HeldKey(id *ID) []byte { return l.IDKey(KindHeld, id) }

// HistoryKey is the key of the history of an item in ("i").
func (l *Layout) HistoryKey(id *ID) []byte { return l.IDKey(KindHistory, id) }

// StateCounterKey is the counter of the held items in a state.
func (l *Layout) StateCounterKey(s ItemState) []byte {
	return tuple.AppendString(l.Key(KindCounter, 16), s.String())
}

// Encode returns the value of a held item's key.
func (h *Record) Encode() []byte {
	holder, since := h.Holder, h.Since
	if h.State != Leased { // nobody holds it any more
		holder, since = "", time.Time{}
	}

	var room [maxRecord]byte
	state := int64(slices.Index(HeldStates[:], h.State))
	record := appendInts(room[:0], heldVersion, state, h.Deliveries, h.Fence,
		h.Due.UnixMicro(), h.Wait.Microseconds(), int64(h.End))
	record = h.Lasting.appendTo(tuple.AppendBytes(record, []byte(h.Reason)))
	record = appendTime(tuple.AppendBytes(record, []byte(holder)), since)
	if h.State == Leased && len(h.Progress) > 0 {
		record = tuple.AppendBytes(record, []byte(h.Progress))
	}

	b := make([]byte, 0, binary.MaxVarintLen32+len(record)+len(h.Value))
	b = binary.AppendUvarint(b, uint64(len(record)))
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
	h.Reason, h.Lasting = string(d.bytes()), d.lasting()
	h.Holder, h.Since = string(d.bytes()), d.timeOrNone()
	if d.more() {
		h.Progress = string(d.bytes())
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("%w: held item %s: record %x: %w", ErrCorrupt, id, record, err)
	}

	// Refuse what no version writes.
	if version != heldVersion ||
		state < 0 || state >= int64(len(HeldStates)) || end < int64(Front) || end > int64(Back) ||
		h.Deliveries < 0 || h.Fence < 0 || h.Fence > 0 && !isWait(wait) ||
		h.Fence == 0 && wait != 0 ||
		HeldStates[state] != Leased && (h.Holder+h.Progress != "" || !h.Since.IsZero()) {
		return nil, fmt.Errorf("%w: held item %s: record %x", ErrCorrupt, id, record)
	}

	h.State = HeldStates[state]
	return h, nil
}

// appendTo appends the elements that are stored behind a reason.
func (l *Lasting) appendTo(b []byte) []byte {
	return tuple.AppendBytes(appendTime(b, l.Expires), []byte(l.Unique))
}

// lasting reads what appendTo wrote.
func (d *decoder) lasting() Lasting {
	return Lasting{Expires: d.timeOrNone(), Unique: string(d.bytes())}
}

// Past returns the item's history as it is stored, nil if the item was never leased.
func (h *Record) Past() []byte {
	if h.Fence == 0 {
		return nil
	}
	return h.History.Encode()
}

// Encode returns the value of the history's key.
func (h History) Encode() []byte {
	b := appendInts(nil, h.Deliveries, h.Fence, h.Wait.Microseconds())
	return h.Lasting.appendTo(tuple.AppendBytes(b, []byte(h.Reason)))
}

// ParseHistory reads what Encode wrote. nil is the zero history.
func ParseHistory(id *ID, data []byte) (h History, err error) {
	if data == nil {
		return h, nil
	}

	d := decoder{rest: data}
	h.Deliveries, h.Fence = d.int(), d.int()
	wait := d.int()
	h.Wait = time.Duration(wait) * time.Microsecond
	h.Reason, h.Lasting = string(d.bytes()), d.lasting()
	if d.end() != nil || h.Deliveries < 0 || h.Fence < 1 || !isWait(wait) {
		return History{}, fmt.Errorf("%w: history of item %s: %x", ErrCorrupt, id, data)
	}
	return h, nil
}

// isWait reports whether a lease may have this length in microseconds. The bound is wider than
// MaxLease, which may grow in later versions.
func isWait(micros int64) bool { return micros > 0 && micros <= settings.MaxDelay.Microseconds() }

// NoteReason keeps the reason of a negative acknowledgement, unless it is empty or the value, which
// another program wrote, leaves no room for it.
func (h *Record) NoteReason(reason string) {
	if reason != "" && len(h.Value) <= MaxHeldValue-MaxNakReason {
		h.Reason = settings.CleanText(reason, MaxNakReason)
	}
}

// SetHolder records who takes the lease, and when, if the holder gave a name. A value that another
// program stored may leave no room for it.
func (h *Record) SetHolder(name string, now time.Time) {
	if name != "" && len(h.Value) <= MaxHeldValue-holderRoom {
		h.Holder, h.Since = name, now
	}
}

// SetProgress records what the holder of the lease says of the job. A value that another program
// stored may leave no room for it.
func (h *Record) SetProgress(progress []byte) {
	const room = holderRoom + 2*settings.MaxProgress // bytes 0 take two
	if len(h.Value) <= MaxHeldValue-room {
		h.Progress = string(progress)
	}
}

// LeasedSince returns when the lease began. Without Since the record only says when the lease was
// last renewed.
func (h *Record) LeasedSince() time.Time {
	switch {
	case h.State != Leased:
		return time.Time{}
	case !h.Since.IsZero():
		return h.Since
	}
	return h.Due.Add(-h.Wait)
}

// NewDelayed returns the held item for a push with a delay, which is held from the start. Its count
// is from its push, so it comes before items that are pushed during the delay. Its fence is 0,
// because it was never leased.
func NewDelayed(id *ID, m *Message, until time.Time, value []byte) *Record {
	return &Record{
		ID: *id, State: Delayed, Due: until, Value: value, History: History{Lasting: LastingOf(m)},
	}
}

// The time index says what falls due in a queue, and when. Each key that falls due has an entry,
// written and removed together with the key:
//
//	("t", due) + (kind, ...) = ""
//
// due is in microseconds since 1970. (kind, ...) is the key that falls due, without the queue's
// subspace:
//
//	("h", priority, count, random)  a lease or delay ends
//	("x", priority, count, random)  an item in ("i") expires, see below
//	("f", ...)                      an answer or claim of a staged pop is over
//	("q"), ("q", group)             a rate allows a full burst again
//	("s", id)                       a schedule fires
//	("p", name)                     a consumer goes
//
// Nothing runs at the due time itself. Instead, each transaction that looks at a queue reads the
// index up to now, and first handles at most due.Page due entries, in the order in which they fell
// due. What it leaves still counts as leased or delayed, and is served once it is back.
// Pending.Behind names such a queue, so that a sweeper can continue with OpSweep, which handles
// more at a time.
//
// An item that has expired is never served, whether it is removed yet or not. An operation that
// cannot tell its result yet, such as a pop that has met only expired items, fails with an error
// that wraps ErrNoRoom: the next transaction continues where this one ended.
//
// An entry is removed together with its key, or by a transaction that has read that the key is gone
// and conflicts with any that writes it. Programs with the bare recipe that pop items which expire
// leave such entries.

// DueKey returns the entry for a key that falls due at the given time.
func (l *Layout) DueKey(at time.Time, key []byte) []byte {
	rest := key[len(l.Prefix):]
	return append(tuple.AppendInt(l.Key(KindDue, 9+len(rest)), at.UnixMicro()), rest...)
}

// DueRange is the range of the entries that are due.
func (l *Layout) DueRange(now time.Time) kv.Range { return l.timesUpTo(KindDue, now) }

// timesUpTo is the range of the keys of a kind that begin with a time in microseconds, up to now.
func (l *Layout) timesUpTo(kind string, now time.Time) kv.Range {
	after := tuple.AppendInt(l.Key(kind, 9), now.UnixMicro()+1)
	return kv.Range{Begin: l.KindRange(kind).Begin, End: after}
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

// An item may expire: Message.Expires, in its ("m") keys, says when. What happens then depends on
// its state:
//
//	ready    its entry ("t", expires) + ("x", ...) = unique key falls due. The transaction that
//	         finds it removes the item and frees its unique key, without reading the ("m") keys
//	delayed  its record says when it expires, and it falls due then at the latest
//	leased   nothing, until the lease ends: it may still be acknowledged
//	staged   nothing. Staged pops need not know what they move, so they leave the entry where it
//	         is, and write it again if the item comes back: see state.Ledger.ReturnStaged

// ExpiryKey is what names an item in ("i") in an entry of the time index. There is no such key.
func (l *Layout) ExpiryKey(id *ID) []byte { return l.IDKey(KindExpiry, id) }

// Expired reports whether something that expires at a time has; zero is never.
func Expired(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// Expired reports whether the time of an item is over, even if it is leased.
func (h *Record) Expired(now time.Time) bool { return Expired(h.Expires, now) }

// Gone reports whether an item counts as gone: it has expired, and has no lease, not even one that
// is over.
func (h *Record) Gone(now time.Time) bool { return h.Expired(now) && h.State != Leased }

// FallsDue returns when something has to be done about a held item.
func (h *Record) FallsDue() time.Time {
	if h.State == Delayed {
		return Earliest(h.Due, h.Expires)
	}
	return h.Due
}
