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
//	("a", priority, count, random) = (deliveries, fence, wait), (deliveries, fence, wait, reason)
//	                                 or (deliveries, fence, wait, reason, unique key)
//
// The record is a varint, and a tuple of that length: (1, state, deliveries, fence, due, wait,
// end), times in microseconds; or the same with 2 and a reason at its end, or with 3, a reason and a
// unique key. The reason is that of the last negative acknowledgement that gave one, and may be empty
// before a unique key.
//
// # Why a late acknowledgement never touches a later delivery
//
// Each lease of an item has a higher fence than all before it, and a token holds the
// fence of its lease. Deliveries cannot serve for that, because some are not counted. An
// operation with a token reads the key of the held item and, unless that is there, the two of
// the item in the queue. So it conflicts with whoever moves the item, and does nothing unless
// the item is there with the fence of the token.
type held struct {
	id         ID
	state      heldState
	deliveries int64 // so far, this one included
	fence      int64
	due        time.Time     // end of the lease, or of the delay
	wait       time.Duration // length of the lease
	end        End           // that the item was leased from
	reason     string        // of a negative acknowledgement
	unique     string        // its unique key
	value      []byte        // as stored
}

// maxHeldValue is the longest stored value that fits behind a record without a reason. Those of this
// package are shorter, and have room for a reason and a unique key.
const maxHeldValue = kv.MaxValueSize - maxRecord

// maxRecord is at least the length of a record without a reason, and of its length.
const maxRecord = 100

var errCannotHold = fmt.Errorf("%w: another program wrote it, with more than the %d bytes in one key that can be leased: "+
	"want a pop without a lease", ErrMaxBytes, maxHeldValue)

type heldState int64

const (
	leased heldState = iota
	delayed

	heldStates = 2 // the number of states
)

// The first element of a record. Versions of this package that do not know reasons or unique keys
// read records without.
const (
	heldVersion       = 1
	heldVersionReason = 2
	heldVersionUnique = 3
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
	fields := tuple.Tuple{
		int64(heldVersion), int64(h.state), h.deliveries, h.fence, h.due.UnixMicro(), h.wait.Microseconds(), int64(h.end),
	}
	switch {
	case h.unique != "":
		fields[0] = int64(heldVersionUnique)
		fields = append(fields, []byte(h.reason), []byte(h.unique))
	case h.reason != "":
		fields[0] = int64(heldVersionReason)
		fields = append(fields, []byte(h.reason))
	}
	record := fields.Pack()
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(record)+len(h.value)), uint64(len(record)))
	return append(append(b, record...), h.value...)
}

// parseHeld reads what encode wrote.
func parseHeld(id *ID, data []byte) (*held, error) {
	n, used := binary.Uvarint(data)
	if used <= 0 || n > uint64(len(data)-used) {
		return nil, fmt.Errorf("%w: held item %s: length of its record", ErrCorrupt, id)
	}
	record, err := tuple.Unpack(data[used : used+int(n)])
	if err != nil {
		return nil, fmt.Errorf("%w: held item %s: %w", ErrCorrupt, id, err)
	}
	var fields [7]int64
	want := len(fields)
	switch {
	case len(record) > 0 && record[0] == int64(heldVersionReason):
		want++
	case len(record) > 0 && record[0] == int64(heldVersionUnique):
		want += 2
	}
	if len(record) != want {
		return nil, fmt.Errorf("%w: held item %s: %d fields of its record: want %d", ErrCorrupt, id, len(record), want)
	}
	var texts [2][]byte // reason and unique key
	for i, text := range record[len(fields):] {
		if !element(text, &texts[i]) {
			return nil, fmt.Errorf("%w: held item %s: text %d of its record", ErrCorrupt, id, i)
		}
	}
	for i := range fields {
		if !element(record[i], &fields[i]) {
			return nil, fmt.Errorf("%w: held item %s: field %d of its record", ErrCorrupt, id, i)
		}
	}
	h := &held{
		id: *id, state: heldState(fields[1]), deliveries: fields[2], fence: fields[3],
		due: time.UnixMicro(fields[4]), wait: time.Duration(fields[5]) * time.Microsecond, end: End(fields[6]),
		reason: string(texts[0]), unique: string(texts[1]), value: data[used+int(n):],
	}
	if fields[0] < heldVersion || fields[0] > heldVersionUnique || h.state < leased || h.state > delayed || int64(h.end) != fields[6] || h.end > Back ||
		h.deliveries < 0 || h.fence < 1 || !isWait(fields[5]) {
		return nil, fmt.Errorf("%w: held item %s: record %v", ErrCorrupt, id, fields)
	}
	return h, nil
}

// history is what is known of an item from its earlier leases.
type history struct {
	deliveries, fence int64
	wait              time.Duration // of the last lease
	reason            string        // of a negative acknowledgement
	unique            string        // its unique key
}

// history returns what is known of the item once it is back in the queue.
func (h *held) history() history { return history{h.deliveries, h.fence, h.wait, h.reason, h.unique} }

func (h history) encode() []byte {
	fields := tuple.Tuple{h.deliveries, h.fence, h.wait.Microseconds()}
	switch {
	case h.unique != "":
		fields = append(fields, []byte(h.reason), []byte(h.unique))
	case h.reason != "":
		fields = append(fields, []byte(h.reason))
	}
	return fields.Pack()
}

// parseHistory returns the zero history for an item without one.
func parseHistory(id *ID, data []byte) (h history, err error) {
	if data == nil {
		return h, nil
	}
	var fields [3]int64
	rest := data
	for i := range fields {
		if fields[i], rest, err = tuple.DecodeInt(rest); err != nil {
			break
		}
	}
	var texts [2][]byte // reason and unique key
	for i := range texts {
		if err == nil && len(rest) > 0 {
			texts[i], rest, err = tuple.DecodeBytes(rest)
		}
	}
	if err != nil || len(rest) > 0 || fields[0] < 0 || fields[1] < 1 || !isWait(fields[2]) {
		return history{}, fmt.Errorf("%w: history of item %s: %x", ErrCorrupt, id, data)
	}
	return history{fields[0], fields[1], time.Duration(fields[2]) * time.Microsecond, string(texts[0]), string(texts[1])}, nil
}

// isWait reports whether a lease may last that many microseconds. Other versions may have
// another MaxLease.
func isWait(micros int64) bool { return micros > 0 && micros <= MaxDelay.Microseconds() }
