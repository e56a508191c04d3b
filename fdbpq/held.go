package fdbpq

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// An item that is leased or delayed is held: it is not in ("i") but, under the same id, in
//
//	("h", priority, count, random) = record, then the value as it was stored
//
// and returns to its old key. While it is held, its ("m") keys stay, and the counter
// ("n", "leased") or ("n", "delayed") counts it. It falls due: see due.go.
//
// An item that is back in ("i") keeps its history in
//
//	("a", priority, count, random) = (deliveries, fence, wait), with (..., reason)
//	                                 or (..., reason, expires, unique key)
//
// The record is a varint, and a tuple of that length: (1, state, deliveries, fence, due, wait,
// end), times in microseconds, or the same with 2 and a reason at its end, or with 3, a reason, the
// time when the item expires, or 0, and its unique key, or "". The reason is that of the last
// negative acknowledgement that gave one; "" is none.
//
// # Why a late acknowledgement never touches a later delivery
//
// Each lease of an item has a higher fence than all before it, and a token holds the
// fence of its lease. Deliveries cannot serve for that, because some are not counted. An
// operation with a token reads the key of the held item and, unless that is there, the two of
// the item in the queue. So it conflicts with whoever moves the item, and does nothing unless
// the item is there with the fence of the token, and was leased.
type held struct {
	id ID
	history
	state   heldState
	due     time.Time // end of the lease, or of the delay
	end     End       // that the item was leased from
	value   []byte    // as stored
	dropped int       // bytes of the value that are not in value any more, but count for sizeOf
	message *Message  // all of it; nil unless known
}

// history is what is known of an item from its leases.
type history struct {
	deliveries int64 // so far; of a leased item, this one included
	fence      int64
	wait       time.Duration // length of the last lease
	reason     string        // of a negative acknowledgement
	lasting
}

// lasting is what travels with an item through all states. In ("i"), its ("m") keys have it.
type lasting struct {
	expires time.Time // when the item expires; zero is never
	unique  string    // its unique key; "" is none
}

// lasts returns what travels with an item of the message.
func (m *Message) lasts() lasting { return lasting{expires: m.Expires, unique: m.Unique} }

// none reports whether nothing does.
func (l *lasting) none() bool { return l.expires.IsZero() && l.unique == "" }

// maxHeldValue is the longest stored value that fits behind a record without a reason. Those of this
// package are shorter, and have room for a reason and a unique key.
const maxHeldValue = kv.MaxValueSize - maxRecord

// maxRecord is at least the length of a record without a reason, and of its length.
const maxRecord = 100

var errCannotHold = fmt.Errorf("%w: another program wrote it, with more than the %d bytes in one key that can be leased: "+
	"want a pop without a lease", ErrItemTooLarge, maxHeldValue)

type heldState int64

const (
	leased heldState = iota
	delayed

	heldStates = 2 // the number of states
)

// The first element of a record. Versions of this package that know neither reasons nor what else an
// item may have read records without.
const (
	heldVersion       = 1
	heldVersionReason = 2
	heldVersionEnd    = 3
)

// counter is the last element of the key that counts items in the state.
func (s heldState) counter() string {
	if s == delayed {
		return "delayed"
	}
	return "leased"
}

func (l *layout) heldKey(id *ID) []byte { return l.idKey(kindHeld, id) }

func (l *layout) historyKey(id *ID) []byte { return l.idKey(kindHistory, id) }

// heldRange is the range of the held items of one priority.
func (l *layout) heldRange(priority int64) kv.Range {
	return within(l.priorityKey(kindHeld, priority))
}

func (l *layout) stateCounterKey(s heldState) []byte {
	return tuple.AppendString(l.key(kindCounter, 16), s.counter())
}

// encode returns the value of a held item's key.
func (h *held) encode() []byte {
	version := int64(heldVersion)
	switch {
	case !h.lasting.none():
		version = heldVersionEnd
	case h.reason != "":
		version = heldVersionReason
	}
	var room [maxRecord]byte
	record := appendInts(room[:0], version, int64(h.state), h.deliveries, h.fence, h.due.UnixMicro(), h.wait.Microseconds(), int64(h.end))
	if version >= heldVersionReason {
		record = tuple.AppendBytes(record, []byte(h.reason))
	}
	if version >= heldVersionEnd {
		record = h.lasting.appendTo(record)
	}
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(record)+len(h.value)), uint64(len(record)))
	return append(append(b, record...), h.value...)
}

// parseHeld reads what encode wrote.
func parseHeld(id *ID, data []byte) (*held, error) {
	n, used := binary.Uvarint(data)
	if used <= 0 || n > uint64(len(data)-used) {
		return nil, fmt.Errorf("%w: held item %s: length of its record", ErrCorrupt, id)
	}
	record, value := data[used:used+int(n)], data[used+int(n):]
	var fields [7]int64
	rest, err := decodeInts(record, fields[:])
	var reason []byte
	if err == nil && fields[0] >= heldVersionReason {
		reason, rest, err = tuple.DecodeBytes(rest)
	}
	var lasts lasting
	if err == nil && fields[0] == heldVersionEnd {
		lasts, rest, err = decodeLasting(rest)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: held item %s: record %x: %w", ErrCorrupt, id, record, err)
	}
	h := &held{
		id: *id, state: heldState(fields[1]), due: time.UnixMicro(fields[4]), end: End(fields[6]), value: value,
		history: history{
			deliveries: fields[2], fence: fields[3], wait: time.Duration(fields[5]) * time.Microsecond,
			reason: string(reason), lasting: lasts,
		},
	}
	if len(rest) > 0 || fields[0] < heldVersion || fields[0] > heldVersionEnd || h.state < leased || h.state > delayed ||
		int64(h.end) != fields[6] || h.end > Back || h.deliveries < 0 || h.fence < 1 || !isWait(fields[5]) {
		return nil, fmt.Errorf("%w: held item %s: record %x", ErrCorrupt, id, record)
	}
	return h, nil
}

// appendInts appends elements of a tuple.
func appendInts(b []byte, fields ...int64) []byte {
	for _, field := range fields {
		b = tuple.AppendInt(b, field)
	}
	return b
}

// decodeInts reads what appendInts wrote into fields, and returns what follows.
func decodeInts(b []byte, fields []int64) (rest []byte, err error) {
	for i := range fields {
		if fields[i], b, err = tuple.DecodeInt(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// appendTo appends it as it is stored behind a reason.
func (l *lasting) appendTo(b []byte) []byte {
	micros := int64(0)
	if !l.expires.IsZero() {
		micros = l.expires.UnixMicro()
	}
	return tuple.AppendBytes(tuple.AppendInt(b, micros), []byte(l.unique))
}

// decodeLasting reads what appendTo wrote, and returns what follows.
func decodeLasting(b []byte) (l lasting, rest []byte, err error) {
	micros, b, err := tuple.DecodeInt(b)
	if err != nil {
		return l, nil, err
	}
	if micros != 0 {
		l.expires = time.UnixMicro(micros).UTC()
	}
	key, rest, err := tuple.DecodeBytes(b)
	l.unique = string(key)
	return l, rest, err
}

// past is its history as it is stored, nil if it was never leased.
func (h *held) past() []byte {
	if h.neverLeased() {
		return nil
	}
	return h.history.encode()
}

func (h history) encode() []byte {
	b := appendInts(nil, h.deliveries, h.fence, h.wait.Microseconds())
	last := !h.lasting.none()
	if h.reason != "" || last {
		b = tuple.AppendBytes(b, []byte(h.reason))
	}
	if last {
		b = h.lasting.appendTo(b)
	}
	return b
}

// parseHistory returns the zero history for an item without one.
func parseHistory(id *ID, data []byte) (h history, err error) {
	if data == nil {
		return h, nil
	}
	var fields [3]int64
	rest, err := decodeInts(data, fields[:])
	var reason []byte
	if err == nil && len(rest) > 0 {
		reason, rest, err = tuple.DecodeBytes(rest)
	}
	if err == nil && len(rest) > 0 {
		h.lasting, rest, err = decodeLasting(rest)
	}
	if err != nil || len(rest) > 0 || fields[0] < 0 || fields[1] < 1 || !isWait(fields[2]) {
		return history{}, fmt.Errorf("%w: history of item %s: %x", ErrCorrupt, id, data)
	}
	h.deliveries, h.fence, h.wait, h.reason = fields[0], fields[1], time.Duration(fields[2])*time.Microsecond, string(reason)
	return h, nil
}

// isWait reports whether a lease may last that many microseconds. Other versions may have
// another MaxLease.
func isWait(micros int64) bool { return micros > 0 && micros <= MaxDelay.Microseconds() }

// noteReason keeps the reason of a negative acknowledgement, if it has given one, unless the value of
// another program leaves no room for it.
func (h *held) noteReason(reason string) {
	if reason != "" && len(h.value) <= maxHeldValue-MaxNakReason {
		h.reason = cleanText(reason, MaxNakReason)
	}
}
