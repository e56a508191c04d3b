package codec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// A job with a Keep leaves a record in its queue when it is acknowledged, in the same
// transaction:
//
//	("g", priority, count, random, part)     = bytes    the record, by the id of the job
//	("g", priority, count, random)           = job id   by the place of a job that had moved
//	("o", order, priority, count, random)    = (until, late, parts) or, of a job that had moved,
//	                                           (until, late, parts, place): the order in which
//	                                                    jobs finished, by job id
//	("j", until, priority, count, random)    = the same, with order in the place of until: the
//	                                                    index by end
//	("o")                                    = int64    counter: finished jobs
//
// The times are in microseconds since 1970. order is when the job finished, but at least a
// microsecond after the last entry there is, so that clocks which differ or are set do not change
// the order; late is by how much order is later than the true time. Readers go by until. A sweep
// removes the records that are over, and the oldest beyond Settings.KeepItems; it conflicts with
// whoever removes one of them, so no record is counted out twice. Each entry says all that it takes
// to remove the record.
//
// None of this is among ItemKinds or in the time index: finished jobs never slow down a pop.
//
// The values of the parts, put together, are a varint, a tuple of that length, the result, the
// headers and properties of the item as in its ("m") keys, and its value:
//
//	(1, place, order, late, until, since, deliveries, fence, holder, has a value,
//	 bytes of the result or -1, content type)
const (
	KindFinished      = "g"
	KindFinishedOrder = "o"
	KindFinishedEnd   = "j"

	finishedVersion = 1
)

// Outcome is what an acknowledgement says of its job.
type Outcome struct {
	Result      []byte // nil is no result; one without bytes is not nil
	ContentType string // of the result; "" is none
}

// Finished is a job that is done, and kept.
type Finished struct {
	Item              // as it was; its ID is its last place
	Outcome           // what the acknowledgement said
	At      time.Time // when it was acknowledged
	Order   time.Time // its place among the jobs that finished: At, or later if a clock was ahead
	Until   time.Time // when its record is over
	Since   time.Time // when its last lease began; zero if that is not known

	Deliveries int64  // how many it had, the last one included
	Fence      int64  // of the last lease
	Holder     string // the name that the last lease was taken with; "" is none
	NoValue    bool   // the transaction had no room for the value
}

// FinishedKey is one of the keys of a record; part counts from 0.
func (l *Layout) FinishedKey(job *ID, part int) []byte {
	return tuple.AppendInt(l.IDKey(KindFinished, job), int64(part))
}

// FinishedRange is the range of the keys of a record.
func (l *Layout) FinishedRange(job *ID) kv.Range { return Within(l.IDKey(KindFinished, job)) }

// FinishedPlaceKey is the key by the last place of a job that had moved. EncodeID wrote its value,
// and ParseAlias reads it.
func (l *Layout) FinishedPlaceKey(place *ID) []byte { return l.IDKey(KindFinished, place) }

// FinishedCounterKey is the counter of finished jobs.
func (l *Layout) FinishedCounterKey() []byte { return l.Key(KindFinishedOrder, 0) }

// FinishedEntry is a job in the order in which jobs finished, or in the index by end.
type FinishedEntry struct {
	Order time.Time // see Finished.Order
	Job   ID
	At    time.Time // when it finished
	Until time.Time // when its record is over
	Parts int       // keys of its record
	Place ID        // the last one of a job that had moved, otherwise zero
}

// FinishedOrderKey is the key of an entry of the order.
func (l *Layout) FinishedOrderKey(order time.Time, job *ID) []byte {
	return l.finishedKeyBy(KindFinishedOrder, order, job)
}

// FinishedEndKey is the key of an entry of the index by end.
func (l *Layout) FinishedEndKey(until time.Time, job *ID) []byte {
	return l.finishedKeyBy(KindFinishedEnd, until, job)
}

func (l *Layout) finishedKeyBy(kind string, at time.Time, job *ID) []byte {
	key := tuple.AppendInt(l.Key(kind, 64), at.UnixMicro())
	return appendPlace(l.appendPriority(key, job.Priority), job)
}

// FinishedOrder is the range of the entries of the order.
func (l *Layout) FinishedOrder() kv.Range { return l.KindRange(KindFinishedOrder) }

// FinishedOver is the range of the entries of the index by end whose records are over.
func (l *Layout) FinishedOver(now time.Time) kv.Range { return l.timesUpTo(KindFinishedEnd, now) }

// Encode returns the value of the entry in the order.
func (e *FinishedEntry) Encode() []byte { return e.encodeWith(e.Until) }

// EncodeEnd returns the value of the entry in the index by end.
func (e *FinishedEntry) EncodeEnd() []byte { return e.encodeWith(e.Order) }

func (e *FinishedEntry) encodeWith(at time.Time) []byte {
	value := appendInts(appendTime(nil, at), lateBy(e.At, e.Order), int64(e.Parts))
	if e.Place != (ID{}) {
		value = tuple.AppendBytes(value, EncodeID(&e.Place))
	}
	return value
}

// ParseFinishedEntry reads an entry of the order. With an error about the value, Order and Job are
// set. The error is ErrCorrupt.
func (l *Layout) ParseFinishedEntry(pair kv.KeyValue) (e FinishedEntry, err error) {
	d := decoder{rest: l.Place(pair.Key)}
	e.Order, e.Job = d.time(), d.idIn(l)
	if e, err = finish(&d, e, "entry of a finished job: key", pair.Key); err != nil {
		return e, err
	}

	d = decoder{rest: pair.Value}
	full := e
	full.Until = d.time()
	full.At, full.Parts = before(e.Order, d.int()), int(d.int())
	if d.more() {
		full.Place = d.encodedID()
	}
	if _, err = finish(&d, full, "entry of a finished job: value", pair.Value); err != nil {
		return e, err
	}
	return full, nil
}

// ParseFinishedEnd reads an entry of the index by end. The error is ErrCorrupt.
func (l *Layout) ParseFinishedEnd(pair kv.KeyValue) (FinishedEntry, error) {
	e, err := l.ParseFinishedEntry(pair)
	if err != nil {
		return FinishedEntry{}, err
	}
	late := lateBy(e.At, e.Order)
	e.Order, e.Until = e.Until, e.Order
	e.At = before(e.Order, late)
	return e, nil
}

// lateBy returns by how many microseconds the place of a job in the order is later than its time.
func lateBy(at, order time.Time) int64 { return order.UnixMicro() - at.UnixMicro() }

// before returns the time that is late microseconds before a place in the order.
func before(order time.Time, late int64) time.Time {
	return time.UnixMicro(order.UnixMicro() - late).UTC()
}

// ourHeaders are those that queues add to items. Each item has few bytes of them, but for attempts.
var ourHeaders = []string{trail.Header, trail.HeaderParent, HeaderJoined}

// DropHeaders drops the headers that the job was pushed with, and its keys.
func (f *Finished) DropHeaders() {
	f.MsgID, f.Unique = "", ""
	f.Headers = maps.Clone(f.Headers)
	maps.DeleteFunc(f.Headers, func(name string, _ []string) bool {
		return !slices.Contains(ourHeaders, name)
	})
}

// DropAttempts drops all attempts but the last one, which says how many it has dropped.
func (f *Finished) DropAttempts() {
	if values := f.Headers[trail.Header]; len(values) > 0 {
		f.SetHeader(trail.Header, trail.Last(values))
	}
}

// Encode returns the values of the parts of a record.
func (f *Finished) Encode() (parts [][]byte) {
	value, result := int64(1), int64(-1)
	if f.NoValue {
		value = 0
	}
	if f.Result != nil {
		result = int64(len(f.Result))
	}

	head := tuple.AppendBytes(appendInts(nil, finishedVersion), EncodeID(&f.ID))
	head = appendInts(appendTime(head, f.Order), lateBy(f.At, f.Order))
	head = appendTime(appendTime(head, f.Until), f.Since)
	head = tuple.AppendBytes(appendInts(head, f.Deliveries, f.Fence), []byte(f.Holder))
	head = tuple.AppendBytes(appendInts(head, value, result), []byte(f.ContentType))

	blob := append(binary.AppendUvarint(nil, uint64(len(head))), head...)
	blob = append(append(blob, f.Result...), EncodeMeta(&f.Message)...)
	if !f.NoValue {
		blob = append(blob, f.Value...)
	}

	for len(blob) > 0 {
		n := min(len(blob), ChunkSize)
		parts, blob = append(parts, blob[:n]), blob[n:]
	}
	return parts
}

// ParseFinished reads the parts of a record, in their order. The error is ErrCorrupt, also if parts
// are missing.
func ParseFinished(parts []kv.KeyValue) (*Finished, error) {
	f, rest, err := parseFinishedOutcome(joinParts(parts))
	if err != nil {
		return nil, err
	}

	m, value, err := decodeMeta(rest)
	if err != nil {
		return nil, fmt.Errorf("finished job %s: %w", f.ID, err)
	}
	if !f.NoValue {
		m.Value = value
	}
	f.Message = m
	return f, nil
}

// ParseFinishedOutcome is ParseFinished without the message. The parts are as many as have
// OutcomeBytes.
func ParseFinishedOutcome(parts []kv.KeyValue) (*Finished, error) {
	f, _, err := parseFinishedOutcome(joinParts(parts))
	return f, err
}

// OutcomeBytes returns how many bytes of a record, whose first part this is, come before the
// message. The error is ErrCorrupt.
func OutcomeBytes(first []byte) (int, error) {
	_, result, rest, err := parseFinishedHead(first)
	return len(first) - len(rest) + int(max(result, 0)), err
}

// parseFinishedOutcome reads what comes before the message in a record, and returns the rest.
func parseFinishedOutcome(blob []byte) (f *Finished, rest []byte, err error) {
	f, result, rest, err := parseFinishedHead(blob)
	if err == nil && result > int64(len(rest)) {
		err = fmt.Errorf("%w: finished job %s: its result has %d bytes, not %d", ErrCorrupt, f.ID,
			len(rest), result)
	}
	if err != nil {
		return nil, nil, err
	}
	if result >= 0 {
		f.Result, rest = rest[:result:result], rest[result:]
	}
	return f, rest, nil
}

// ParseFinishedHead reads what the first part of a record says, without the message and the result.
func ParseFinishedHead(first []byte) (*Finished, error) {
	f, _, _, err := parseFinishedHead(first)
	return f, err
}

// parseFinishedHead reads the tuple at the beginning of a record. It returns what follows, and how
// many bytes of it are the result; -1 is no result.
func parseFinishedHead(blob []byte) (f *Finished, result int64, rest []byte, err error) {
	n, used := binary.Uvarint(blob)
	if used <= 0 || n > uint64(len(blob)-used) {
		return nil, 0, nil, fmt.Errorf("%w: finished job: length of its record", ErrCorrupt)
	}

	head, rest := blob[used:used+int(n)], blob[used+int(n):]
	d := decoder{rest: head}
	version, place := d.int(), decoder{rest: d.bytes()}
	f = &Finished{Item: Item{ID: place.id()}}
	f.PushedAt = PushedAt(&f.ID)
	f.Order = d.time()
	f.At, f.Until, f.Since = before(f.Order, d.int()), d.time(), d.timeOrNone()
	f.Deliveries, f.Fence, f.Holder = d.int(), d.int(), string(d.bytes())
	f.NoValue, result, f.ContentType = d.int() == 0, d.int(), string(d.bytes())
	if d.end() != nil || place.end() != nil || version != finishedVersion || result < -1 {
		return nil, 0, nil, fmt.Errorf("%w: finished job: record %.200x", ErrCorrupt, head)
	}
	return f, result, rest, nil
}
