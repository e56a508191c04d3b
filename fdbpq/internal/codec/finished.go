package codec

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A job with a Keep leaves a record in its queue when it is acknowledged, in the same
// transaction:
//
//	("g", priority, count, random, part)     = bytes    the record, by the id of the job
//	("g", priority, count, random)           = job id   by the place of a job that had moved
//	("o", finished, priority, count, random) = (until, parts) or, of a job that had moved,
//	                                           (until, parts, place): the order in which jobs
//	                                                    finished, by job id
//	("o")                                    = int64    counter: finished jobs
//
// The times are in microseconds since 1970. Readers go by until. A sweep removes the records that
// are over, and the oldest beyond Settings.KeepItems: it reads their entries of the order with
// conflict, so no record is counted out twice. An entry says all that it takes to remove the
// record.
//
// None of this is among ItemKinds or in the time index: finished jobs never slow down a pop.
//
// The values of the parts, put together, are a varint, a tuple of that length, the result, the
// headers and properties of the item as in its ("m") keys, and its value:
//
//	(1, place, finished, until, since, deliveries, fence, holder, has a value,
//	 bytes of the result or -1, content type)
const (
	KindFinished      = "g"
	KindFinishedOrder = "o"

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
	Until   time.Time // when its record is over
	Since   time.Time // when its last lease began; zero if that is not known

	Deliveries int64  // how many it had, the last one included
	Fence      int64  // of the last lease
	Holder     string // the name that the last lease was taken with; "" is none
	NoValue    bool   // the transaction had no room for the value, nor perhaps for the headers
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

// FinishedEntry is a job in the order in which jobs finished.
type FinishedEntry struct {
	At    time.Time // when it finished
	Job   ID
	Until time.Time // when its record is over; zero if the entry cannot be read
	Parts int       // keys of its record
	Place ID        // the last one of a job that had moved, otherwise zero
}

// FinishedOrderKey is the key of an entry of the order.
func (l *Layout) FinishedOrderKey(at time.Time, job *ID) []byte {
	key := tuple.AppendInt(l.Key(KindFinishedOrder, 64), at.UnixMicro())
	return appendPlace(l.appendPriority(key, job.Priority), job)
}

// FinishedOrder is the range of the entries of the order.
func (l *Layout) FinishedOrder() kv.Range { return l.KindRange(KindFinishedOrder) }

// FinishedUpTo is the range of the entries of jobs that finished up to a time.
func (l *Layout) FinishedUpTo(at time.Time) kv.Range { return l.timesUpTo(KindFinishedOrder, at) }

// Encode returns the value of the entry.
func (e *FinishedEntry) Encode() []byte {
	value := appendInts(appendTime(nil, e.Until), int64(e.Parts))
	if e.Place != (ID{}) {
		value = tuple.AppendBytes(value, EncodeID(&e.Place))
	}
	return value
}

// ParseFinishedEntry reads an entry of the order. With an error about the value, At and Job are
// set. The error is ErrCorrupt.
func (l *Layout) ParseFinishedEntry(pair kv.KeyValue) (e FinishedEntry, err error) {
	d := decoder{rest: l.Place(pair.Key)}
	e.At, e.Job = d.time(), d.idIn(l)
	if e, err = finish(&d, e, "order of finished jobs: key", pair.Key); err != nil {
		return e, err
	}

	d = decoder{rest: pair.Value}
	full := e
	full.Until, full.Parts = d.time(), int(d.int())
	if d.more() {
		place := decoder{rest: d.bytes()}
		full.Place = place.id()
		d.err = cmp.Or(d.err, place.end())
	}
	if _, err = finish(&d, full, "order of finished jobs: value", pair.Value); err != nil {
		return e, err
	}
	return full, nil
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
	for _, at := range [...]time.Time{f.At, f.Until, f.Since} {
		head = appendTime(head, at)
	}
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
	f.At, f.Until, f.Since = d.time(), d.time(), d.timeOrNone()
	f.Deliveries, f.Fence, f.Holder = d.int(), d.int(), string(d.bytes())
	f.NoValue, result, f.ContentType = d.int() == 0, d.int(), string(d.bytes())
	if d.end() != nil || place.end() != nil || version != finishedVersion || result < -1 {
		return nil, 0, nil, fmt.Errorf("%w: finished job: record %.200x", ErrCorrupt, head)
	}
	return f, result, rest, nil
}
