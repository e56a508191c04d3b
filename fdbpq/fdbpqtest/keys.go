package fdbpqtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// item takes the key of a ready item.
func (q *queue) item(key tuple.Tuple, value []byte) error {
	id, err := parseID(key, q.fifo)
	if err != nil {
		return err
	}
	if len(key) != idLength(q.fifo) {
		return errors.New("too long for an item")
	}

	what := string(key.Pack())
	q.all.set(what, true)
	if codec.Ours(&id) {
		q.items.set(what, id.Priority)
		q.metas.set(what, codec.HasMeta(&id))
		q.bytes.values.set(what, value)
		q.groups.has(q, "w", id, key, false)
	}

	return nil
}

// heldItem takes the key of a leased or delayed item.
func (q *queue) heldItem(key tuple.Tuple, value []byte) error {
	id, err := parseID(key, q.fifo)
	if err != nil || len(key) != idLength(q.fifo) {
		return errors.Join(errors.New("malformed id of a held item"), err)
	}

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

	q.falls.set(packed("h", key), due.UnixMicro())
	q.held.set(what, true)
	q.ends.set(what, record.Lasting)
	if codec.Ours(&id) {
		q.metas.set(what, codec.HasMeta(&id))
		q.heldOwn.set(record.State.String(), q.heldOwn[record.State.String()]+1)
		q.bytes.values.set(what, record.Value)
		q.groups.has(q, "y", id, key, leased)
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
	return nil
}

// settings takes the key of the settings.
func (q *queue) settings(key tuple.Tuple, value []byte) error {
	q.config = true
	stored, err := codec.ParseSettings(value)
	if err != nil || len(key) > 0 || !bytes.Equal(stored.Encode(), value) {
		return fmt.Errorf("malformed settings %x, or a default: %w", value, err)
	}
	q.hasSource, q.bytes.limited = stored.Source != "", stored.MaxBytes > 0
	return nil
}

// source takes the key of the state of a source.
func (q *queue) source(key tuple.Tuple, value []byte) error {
	state, err := settings.ParseSourceState(value)
	q.hasState = len(state.Source) > 0
	if len(key) > 0 || err != nil || !q.hasState && len(state.Former) == 0 {
		return fmt.Errorf("malformed source: %q", value)
	}
	return nil
}

// consumer takes the key of the record of a consumer.
func (q *queue) consumer(key tuple.Tuple, value []byte) error {
	q.consumers++
	name, _ := elementAt[string](key, 0)
	wrongName := len(key) != 1 || len(name) == 0 || len(name) > 128
	if wrongName || len(value) == 0 || len(value) > 4096 {
		return fmt.Errorf("malformed consumer: value of %d bytes", len(value))
	}

	if expires := codec.ConsumerExpires(value); !expires.IsZero() {
		q.falls.set(packed("p", key), expires.UnixMicro())
	}
	if q.consumers > 200 {
		return fmt.Errorf("there are %d consumers and schedules", q.consumers)
	}

	return nil
}

// schedule takes the key of the record of a schedule, which falls due when it fires next.
func (q *queue) schedule(key tuple.Tuple, value []byte) error {
	q.consumers++
	name, ok := elementAt[string](key, 0)
	record, err := schedule.Parse(value)
	if err != nil || !ok || len(key) != 1 || record.ID != name || len(value) > 65536 {
		return fmt.Errorf("malformed schedule %q: %w", value, err)
	}
	if !record.Next.IsZero() {
		q.falls.set(packed("s", key), record.Next.UnixMicro())
	}

	return nil
}

func (q *queue) part(key tuple.Tuple, value []byte) error {
	if _, err := parseID(key, q.fifo); err != nil {
		return err
	}

	n := idLength(q.fifo)
	part, ok := elementAt[int64](key, n)
	if !ok || len(key) != n+1 {
		return errors.New("no number of the part")
	}
	if len(value) == 0 {
		return errors.New("empty part")
	}

	id := string(key[:n].Pack())
	q.parts.set(id, append(q.parts[id], part))
	q.blobs.set(id, append(q.blobs[id], value...))
	return nil
}

func (q *queue) count(key tuple.Tuple, value []byte) error {
	_, isInt := elementAt[int64](key, 0)
	state, _ := elementAt[string](key, 0)
	isKnown := state == "leased" || state == "delayed" || isInt && !q.fifo
	if len(key) > 1 || len(key) == 1 && !isKnown {
		return errors.New("unknown number of items")
	}
	if len(value) != 8 {
		return fmt.Errorf("value %x is no number", value)
	}

	n := int64(binary.LittleEndian.Uint64(value))
	if n <= 0 {
		return fmt.Errorf("number of items is %d", n)
	}

	q.counts.set(string(key.Pack()), n)
	return nil
}

// request takes the key of a staged pop that is in line.
func (q *queue) request(key tuple.Tuple, value []byte) error {
	_, isCount := elementAt[int64](key, 0)
	id, _ := elementAt[[]byte](key, 1)
	content, err := tuple.Unpack(value)
	if !isCount || len(id) != 20 || len(key) != 2 || err != nil || len(content) != 2 {
		return fmt.Errorf("malformed request: value %x", value)
	}
	return nil
}

// answer takes a key (part, request) of a staged pop: part 0 is its answer, 1 the value of its
// item, 2 its claim.
func (q *queue) answer(key tuple.Tuple, value []byte) error {
	part, isPart := elementAt[int64](key, 0)
	request, _ := elementAt[[]byte](key, 1)
	if !isPart || part < 0 || part > codec.PartClaim || len(request) != 20 || len(key) != 2 {
		return fmt.Errorf("malformed answer: value %x", value)
	}
	if part == codec.PartValue {
		q.bytes.staged.set(string(request), value)
		return nil
	}

	if part == codec.PartClaim {
		deadline, _, err := codec.ParseClaim(value)
		q.falls.set(packed("f", key), deadline.UnixMicro())
		return err
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
		q.bytes.answers.set(string(request), id)
	}

	return nil
}

// dueKey takes the key (due, kind, ...) of the time index.
func (q *queue) dueKey(key tuple.Tuple, value []byte) error {
	due, isTime := elementAt[int64](key, 0)
	kind, isKind := elementAt[string](key, 1)
	if !isTime || !isKind || len(value) > 0 && kind != "x" {
		return fmt.Errorf("malformed entry of the time index: value %x", value)
	}

	what := string(key[1:].Pack())
	if kind == "q" { // Some may stand for a row that is gone.
		q.groups.bucketsDue.set(fmt.Sprint(what, due), true)
		return nil
	}
	if _, twice := q.due[what]; twice {
		return errors.New("there is another entry for the same key")
	}

	q.due.set(what, due)
	q.says.set(what, string(value))
	return nil
}

func idLength(fifo bool) int {
	if fifo {
		return 2
	}
	return 3
}

// parseID reads (priority, count, random) or, in a FIFO queue, (index, random).
func parseID(key tuple.Tuple, fifo bool) (id codec.ID, err error) {
	ints := []*int64{&id.Priority, &id.Count}
	if fifo {
		ints = ints[1:]
	}

	for i, p := range ints {
		n, ok := elementAt[int64](key, i)
		if !ok {
			return id, fmt.Errorf("element %d of the id is no integer", i)
		}
		*p = n
	}

	random, ok := elementAt[[]byte](key, len(ints))
	if !ok || len(random) != len(id.Random) {
		return id, errors.New("random part of the id is not 20 bytes")
	}

	copy(id.Random[:], random)
	return id, nil
}

// idKey returns the bytes of an id in a key.
func (q *queue) idKey(id *codec.ID) string {
	key := tuple.Tuple{id.Priority, id.Count, id.Random[:]}
	return string(key[len(key)-idLength(q.fifo):].Pack())
}

// packed returns a kind of key and the rest of the key, packed.
func packed(kind string, key tuple.Tuple) string {
	return string(append(tuple.Tuple{kind}, key...).Pack())
}

// elementAt returns an element of a tuple, and whether there is one of type T.
func elementAt[T any](t tuple.Tuple, i int) (value T, ok bool) {
	if i >= len(t) {
		return value, false
	}
	value, ok = t[i].(T)
	return value, ok
}
