package fdbpqtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// item takes the key of a ready item.
func (q *queue) item(key tuple.Tuple, value []byte) error {
	id, what := idIn(key), string(key.Pack())
	q.all.set(what, true)
	if codec.Ours(&id) {
		q.items.set(what, id.Priority)
		q.metas.set(what, codec.HasMeta(&id))
		q.bytes.values.set(what, value)
		q.groups.has("w", id, key, false)
	}

	return nil
}

// heldItem takes the key of a leased or delayed item.
func (q *queue) heldItem(key tuple.Tuple, value []byte) error {
	id := idIn(key)
	record, err := codec.ParseRecord(&id, value)
	if err != nil {
		return err
	}
	if !bytes.Equal(record.Encode(), value) || record.Deliveries > record.Fence {
		return fmt.Errorf("malformed record %x", value)
	}

	what, leased := string(key.Pack()), record.State == codec.Leased
	due := record.Due
	if !leased && !record.Expires.IsZero() && record.Expires.Before(due) {
		due = record.Expires
	}

	q.ended.set(what, record.Attempts())
	q.falls.set(packed("h", key), due.UnixMicro())
	q.held.set(what, true)
	q.ends.set(what, record.Lasting)
	if codec.Ours(&id) {
		q.metas.set(what, codec.HasMeta(&id))
		q.heldOwn.set(record.State.String(), q.heldOwn[record.State.String()]+1)
		q.bytes.values.set(what, record.Value)
		q.groups.has("y", id, key, leased)
	}

	return nil
}

// history takes the key of the history of an item that was leased before.
func (q *queue) history(key tuple.Tuple, value []byte) error {
	history, err := codec.ParseHistory(&codec.ID{}, value)
	if err != nil {
		return err
	}
	if !bytes.Equal(history.Encode(), value) || history.Deliveries > history.Fence {
		return fmt.Errorf("malformed history: value %x", value)
	}

	q.ends.set(string(key.Pack()), history.Lasting)
	q.past.set(string(key.Pack()), true)
	q.ended.set(string(key.Pack()), history.Deliveries)
	return nil
}

// attempt takes the key of an attempt of an item.
func (q *queue) attempt(key tuple.Tuple, value []byte) error {
	place := len(key) - 1
	id, number := string(key[:place].Pack()), key[place].(int64)
	a, err := codec.ParseAttemptValue(value)
	if err != nil {
		return err
	}
	if !bytes.Equal(codec.EncodeAttempt(&a), value) || len(a.Reason) > trail.MaxReason {
		return fmt.Errorf("malformed attempt: %x", value)
	}
	q.trails.set(id, append(q.trails[id], number))
	return nil
}

// settings takes the key of the settings.
func (q *queue) settings(_ tuple.Tuple, value []byte) error {
	q.config = true
	stored, err := codec.ParseSettings(value)
	if err != nil || !bytes.Equal(stored.Encode(), value) {
		return fmt.Errorf("malformed settings %x, or a default: %w", value, err)
	}
	q.hasSource, q.bytes.limited = stored.Source != "", stored.MaxBytes > 0
	q.trail = stored.Trail
	return nil
}

// source takes the key of the state of a source.
func (q *queue) source(_ tuple.Tuple, value []byte) error {
	state, err := settings.ParseSourceState(value)
	q.hasState = len(state.Source) > 0
	if err != nil || !q.hasState && len(state.Former) == 0 {
		return fmt.Errorf("malformed source: %q", value)
	}
	return nil
}

// consumer takes the key of the record of a consumer.
func (q *queue) consumer(key tuple.Tuple, value []byte) error {
	q.consumers++
	name := key[0].(string)
	if len(name) == 0 || len(name) > 128 || len(value) == 0 || len(value) > 4096 {
		return fmt.Errorf("malformed consumer: value of %d bytes", len(value))
	}

	q.recordDue("p", key, len(name)+len(value), codec.ConsumerExpires(value))
	if q.consumers > 200 {
		return fmt.Errorf("there are %d consumers and schedules", q.consumers)
	}

	return nil
}

// schedule takes the key of the record of a schedule, which falls due when it fires next.
func (q *queue) schedule(key tuple.Tuple, value []byte) error {
	q.consumers++
	name := key[0].(string)
	record, err := schedule.Parse(value)
	if err != nil || record.ID != name || len(value) > 65536 {
		return fmt.Errorf("malformed schedule %q: %w", value, err)
	}
	q.recordDue("s", key, len(name)+len(value), record.Next)
	return nil
}

// recordDue notes what the summary of a record has to say, and when the record falls due.
func (q *queue) recordDue(kind string, key tuple.Tuple, size int, at time.Time) {
	due := int64(0)
	if !at.IsZero() {
		due = at.UnixMicro()
		q.falls.set(packed(kind, key), due)
	}
	q.records.set(packed(kind, key), [2]int64{int64(size), due})
}

// summary takes the key of the summary of a record.
func (q *queue) summary(key tuple.Tuple, value []byte) error {
	s, err := tuple.Unpack(value)
	if err != nil || !fits(s, "ii", q.fifo) {
		return fmt.Errorf("malformed summary: value %x", value)
	}
	q.summaries.set(string(key.Pack()), [2]int64{s[0].(int64), s[1].(int64)})
	return nil
}

func (q *queue) part(key tuple.Tuple, value []byte) error {
	if len(value) == 0 {
		return errors.New("empty part")
	}

	n := len(key) - 1
	id := string(key[:n].Pack())
	q.parts.set(id, append(q.parts[id], key[n].(int64)))
	q.blobs.set(id, append(q.blobs[id], value...))
	return nil
}

func (q *queue) count(key tuple.Tuple, value []byte) error {
	if fits(key, "s", q.fifo) && key[0] != "leased" && key[0] != "delayed" {
		return errors.New("unknown number of items")
	}
	n, err := number(value)
	if err == nil && n <= 0 {
		err = fmt.Errorf("number of items is %d", n)
	}
	q.counts.set(string(key.Pack()), n)
	return err
}

// number reads the value of a counter.
func number(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("value %x is no number", value)
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// request takes the key of a staged pop that is in line.
func (q *queue) request(_ tuple.Tuple, value []byte) error {
	content, err := tuple.Unpack(value)
	if err != nil || len(content) != 2 {
		return fmt.Errorf("malformed request: value %x", value)
	}
	return nil
}

// answer takes a key (part, request) of a staged pop: part 0 is its answer, 1 the value of its
// item, 2 its claim.
func (q *queue) answer(key tuple.Tuple, value []byte) error {
	request := string(key[1].([]byte))
	switch part := key[0].(int64); part {
	case codec.PartAnswer:
	case codec.PartValue:
		q.bytes.staged.set(request, value)
		return nil
	case codec.PartClaim:
		deadline, _, err := codec.ParseClaim(value)
		q.falls.set(packed("f", key), deadline.UnixMicro())
		return err
	default:
		return fmt.Errorf("no part %d of an answer", part)
	}

	answer, err := codec.ParseAnswer(value)
	if err != nil {
		return err
	}

	q.falls.set(packed("f", key), answer.Deadline.UnixMicro())
	if answer.Item == nil {
		return nil
	}

	id := q.idKey(answer.Item)
	q.staged.set(id, true)
	if codec.Ours(answer.Item) {
		q.bytes.answers.set(request, id)
	}

	return nil
}

// dueKey takes the key (due, kind, ...) of the time index.
func (q *queue) dueKey(key tuple.Tuple, value []byte) error {
	due, kind := key[0].(int64), key[1]
	if len(value) > 0 && kind != "x" && kind != "h" {
		return fmt.Errorf("malformed entry of the time index: value %x", value)
	}

	what := string(key[1:].Pack())
	if kind == "q" { // Some may stand for a row that is gone.
		q.groups.bucketsDue.set(fmt.Sprint(what, due), true)
		return nil
	}
	if kind == "h" {
		if id := idIn(key[2:]); codec.Must(&id) {
			q.marks.set(what, append(q.marks[what], due))
			q.due.set(what, due)
			return nil
		}
	}
	if _, twice := q.due[what]; twice {
		return errors.New("there is another entry for the same key")
	}

	q.due.set(what, due)
	q.says.set(what, string(value))
	return nil
}

// idIn returns the id in (priority, count, random) or, in a FIFO queue, (index, random).
func idIn(key tuple.Tuple) (id codec.ID) {
	last := len(key) - 1
	if last > 1 {
		id.Priority = key[0].(int64)
	}
	id.Count = key[last-1].(int64)
	copy(id.Random[:], key[last].([]byte))
	return id
}

// idKey returns the bytes of an id in a key.
func (q *queue) idKey(id *codec.ID) string {
	key := tuple.Tuple{id.Priority, id.Count, id.Random[:]}
	if q.fifo {
		key = key[1:]
	}
	return string(key.Pack())
}

// packed returns a kind of key and the rest of the key, packed.
func packed(kind string, key tuple.Tuple) string {
	return string(append(tuple.Tuple{kind}, key...).Pack())
}
