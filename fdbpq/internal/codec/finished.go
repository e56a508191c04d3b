package codec

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A job that is to be kept leaves a record in its queue when it is acknowledged, in the same
// transaction:
//
//	("g", priority, count, random, part)     = bytes    the record, by the id of the job
//	("g", priority, count, random)           = job id   by the place of a job that had moved
//	("o", finished, priority, count, random) = until    the order in which jobs finished, by job id
//	("o")                                    = int64    counter: finished jobs
//
// The times are in microseconds since 1970. Readers go by until. A sweep removes the records that
// are over, and the oldest beyond Settings.KeepItems: it reads the order with conflict, so no
// record is counted out twice.
//
// None of this is among ItemKinds or in the time index: finished jobs never slow down a pop.
//
// The values of the parts, put together, are a varint, a tuple of that length, the headers and
// properties of the item as in its ("m") keys, and its value:
//
//	(1, place, finished, until, since, deliveries, fence, holder, has a value, has a result,
//	 content type, result)
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

// FinishedOrderKey is the entry of a job in the order in which jobs finished.
func (l *Layout) FinishedOrderKey(at time.Time, job *ID) []byte {
	key := tuple.AppendInt(l.Key(KindFinishedOrder, 64), at.UnixMicro())
	return appendPlace(l.appendPriority(key, job.Priority), job)
}

// FinishedOrder is the range of the entries of the order.
func (l *Layout) FinishedOrder() kv.Range { return l.KindRange(KindFinishedOrder) }

// ParseFinishedOrder reads an entry of the order.
func (l *Layout) ParseFinishedOrder(entry kv.KeyValue) (job ID, at, until time.Time, err error) {
	d := decoder{rest: l.Place(entry.Key)}
	at, job = d.time(), d.idIn(l)
	if job, err = finish(&d, job, "order of finished jobs: key", entry.Key); err != nil {
		return job, at, until, err
	}

	d = decoder{rest: entry.Value}
	until, err = finish(&d, d.time(), "order of finished jobs: value", entry.Value)
	return job, at, until, err
}

// EncodeUntil returns the value of an entry of the order.
func EncodeUntil(until time.Time) []byte { return appendTime(nil, until) }

// Encode returns the values of the parts of a record.
func (f *Finished) Encode() (parts [][]byte) {
	head := appendInts(nil, finishedVersion)
	head = tuple.AppendBytes(head, EncodeID(&f.ID))
	for _, at := range [...]time.Time{f.At, f.Until, f.Since} {
		head = appendTime(head, at)
	}
	head = appendInts(head, f.Deliveries, f.Fence)
	head = tuple.AppendBytes(head, []byte(f.Holder))
	head = appendInts(head, flagOf(!f.NoValue), flagOf(f.Result != nil))
	head = tuple.AppendBytes(tuple.AppendBytes(head, []byte(f.ContentType)), f.Result)

	blob := append(binary.AppendUvarint(nil, uint64(len(head))), head...)
	blob = append(blob, EncodeMeta(&f.Message)...)
	if !f.NoValue {
		blob = append(blob, f.Value...)
	}

	for len(blob) > 0 {
		n := min(len(blob), ChunkSize)
		parts, blob = append(parts, blob[:n]), blob[n:]
	}
	return parts
}

// flagOf returns 1 for true.
func flagOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// ParseFinished reads the parts of a record, in their order. The error is ErrCorrupt, also if parts
// are missing.
func ParseFinished(parts []kv.KeyValue) (*Finished, error) {
	blob := joinParts(parts)
	n, used := binary.Uvarint(blob)
	if used <= 0 || n > uint64(len(blob)-used) {
		return nil, fmt.Errorf("%w: finished job: length of its record", ErrCorrupt)
	}

	head := blob[used : used+int(n)]
	d := decoder{rest: head}
	version, place := d.int(), decoder{rest: d.bytes()}
	f := &Finished{Item: Item{ID: place.id()}}
	f.At, f.Until, f.Since = d.time(), d.time(), d.timeOrNone()
	f.Deliveries, f.Fence, f.Holder = d.int(), d.int(), string(d.bytes())
	value, result := d.int(), d.int()
	f.ContentType, f.Result = string(d.bytes()), d.bytes()
	if err := d.end(); err != nil || place.end() != nil || version != finishedVersion {
		return nil, fmt.Errorf("%w: finished job: record %.200x of version %d", ErrCorrupt, head,
			version)
	}

	m, rest, err := decodeMeta(blob[used+int(n):])
	if err != nil {
		return nil, fmt.Errorf("finished job %s: %w", f.ID, err)
	}
	if f.NoValue = value == 0; !f.NoValue {
		m.Value = rest
	}
	if result == 0 {
		f.Result = nil
	} else if f.Result == nil {
		f.Result = []byte{}
	}
	f.Message, f.PushedAt = m, PushedAt(&f.ID)
	return f, nil
}
