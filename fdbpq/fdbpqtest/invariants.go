// Package fdbpqtest checks stored queues against the layout that package fdbpq documents. It
// shares no code with the queues, so that it does not repeat their mistakes.
package fdbpqtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Contents counts what a Keyspace holds.
type Contents struct {
	// Items is the number of items in all queues, including those of programs with the
	// bare recipe.
	Items int
	// Queues is the number of queues in the lists of queues.
	Queues int
	// Receipts is the number of receipts of each Batcher.
	Receipts map[string]int
}

// CheckInvariants reads a Keyspace (see fdbpq.NewKeyspace) in one transaction, and checks that
//
//   - every key decodes, and is of a kind that the layout has;
//   - every item that fdbpq pushed has the ("m") keys that its id calls for, numbered from 0
//     without gaps, and there are no others (held items and items of staged pops count, too);
//   - no item is both ready and held, and only ready items and those of staged pops have a
//     history;
//   - the counters match the items, ready and held, and none is zero; so does the number of bytes in a queue
//     with max_bytes, and no other has one;
//   - every queue with settings or with items that fdbpq pushed is in the list of queues;
//   - settings decode, and none is the default;
//   - every key that falls due and every ready item that expires has exactly one entry in the time
//     index of its queue, at its time, and there are no other entries, but items of staged pops may
//     have theirs;
//   - items that are held, or have a history, expire when their ("m") keys say;
//   - every receipt decodes.
//
// The error joins everything that is wrong.
func CheckInvariants(ctx context.Context, db kv.Database, priority, fifo string) (Contents, error) {
	return kv.ReadTransact(ctx, db, func(r kv.Reader) (Contents, error) {
		c := checker{queues: map[string]*queue{}, contents: Contents{Receipts: map[string]int{}}}
		for _, root := range []string{priority, fifo} {
			if err := c.readRoot(r, root, root == fifo); err != nil {
				return Contents{}, err
			}
		}
		if err := c.each(r, tuple.Tuple{priority + "-x"}, c.receipt); err != nil {
			return Contents{}, err
		}
		for _, q := range c.queues {
			c.checkQueue(q)
		}
		return c.contents, errors.Join(c.problems...)
	})
}

type checker struct {
	queues   map[string]*queue // by root and name, packed
	contents Contents
	problems []error
}

// queue is what one queue holds.
type queue struct {
	name   string // for messages
	fifo   bool
	listed bool
	config bool               // it has settings
	items  map[string]int64   // own items' priority, by the bytes of their id in a key
	parts  map[string][]int64 // numbers of ("m") keys, likewise
	blobs  map[string][]byte  // their values, put together, likewise
	counts map[string]int64   // by the packed priority, "" for the total
	metas  map[string]bool    // whether the id of an own item calls for ("m") keys
	staged map[string]bool    // items of staged pops
	held   map[string]int64   // state of held items, 0 leased and 1 delayed, by id
	ends   map[string]ending  // their expiry and unique key by their records and histories, by id
	past   map[string]bool    // items with a history, by id
	// heldOwn counts the held items that fdbpq pushed, by state.
	heldOwn [2]int64
	all     map[string]bool   // ready items, by id
	falls   map[string]int64  // when each key falls due, by (kind, ...), packed
	due     map[string]int64  // the same, according to the time index
	says    map[string]string // the values there

	msgIDs, msgIDEnds map[string]string // values of message ids, and of their entries
	uniques           map[string]string // unique keys by the item that has them, by id

	bytes byteCount
}

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

func (c *checker) queue(root string, fifo bool, name string) *queue {
	id := string(tuple.Tuple{root, name}.Pack())
	q := c.queues[id]
	if q == nil {
		q = &queue{
			name:   fmt.Sprintf("%s %q", root, name),
			fifo:   fifo,
			items:  map[string]int64{},
			parts:  map[string][]int64{},
			blobs:  map[string][]byte{},
			ends:   map[string]ending{},
			counts: map[string]int64{},
			metas:  map[string]bool{},
			staged: map[string]bool{},
			held:   map[string]int64{},
			past:   map[string]bool{},
			all:    map[string]bool{},
			falls:  map[string]int64{},
			due:    map[string]int64{},
			says:   map[string]string{},

			msgIDs: map[string]string{}, msgIDEnds: map[string]string{}, uniques: map[string]string{},
			bytes: byteCount{values: map[string][]byte{}, staged: map[string][]byte{}, answers: map[string]string{}},
		}
		c.queues[id] = q
	}
	return q
}

// each calls fn for all keys that begin with prefix, with the rest of the key.
func (c *checker) each(r kv.Reader, prefix tuple.Tuple, fn func(key tuple.Tuple, value []byte)) error {
	space := tuple.NewSubspace(prefix)
	begin, end := space.Range()
	for {
		pairs, err := r.GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{Limit: 1000}).Get()
		if err != nil {
			return err
		}
		for _, pair := range pairs {
			key, err := space.Unpack(pair.Key)
			if err != nil {
				c.problem("key %x: %w", pair.Key, err)
				continue
			}
			fn(key, pair.Value)
			begin = kv.SingleKey(pair.Key).End
		}
		if len(pairs) < 1000 {
			return nil
		}
	}
}

func (c *checker) readRoot(r kv.Reader, root string, fifo bool) error {
	err := c.each(r, tuple.Tuple{root}, func(key tuple.Tuple, value []byte) { c.queueKey(root, fifo, key, value) })
	if err != nil {
		return err
	}
	return c.each(r, tuple.Tuple{root + "-queues"}, func(key tuple.Tuple, value []byte) {
		name, ok := elementAt[string](key, 0)
		if !ok || len(key) != 1 {
			c.problem("list of queues: key %v", key)
			return
		}
		c.contents.Queues++
		c.queue(root, fifo, name).listed = true
		content, err := tuple.Unpack(value)
		micros, isTime := elementAt[int64](content, 0)
		_, isMark := elementAt[[]byte](content, 1)
		if err != nil || !isTime || micros <= 0 || len(content) > 2 || len(content) == 2 && !isMark {
			c.problem("list of queues: %q: value %x is no time, with or without a mark", name, value)
		}
	})
}

// queueKey takes the key (name, kind, ...) below a root.
func (c *checker) queueKey(root string, fifo bool, key tuple.Tuple, value []byte) {
	name, named := elementAt[string](key, 0)
	kind, known := elementAt[string](key, 1)
	if !named || !known {
		c.problem("%s: key %v: want (name, kind, ...)", root, key)
		return
	}
	q, rest := c.queue(root, fifo, name), key[2:]
	var err error
	switch kind {
	case "i":
		err = c.item(q, rest, value)
	case "h":
		err = q.heldItem(rest, value)
	case "a":
		err = q.history(rest, value)
	case "b":
		err = q.countKey(rest, value)
	case "c":
		err = q.settings(rest, value)
	case "m":
		err = q.part(rest, value)
	case "n":
		err = q.count(rest, value)
	case "r":
		err = request(rest, value)
	case "f":
		err = q.answer(rest, value)
	case "t":
		err = q.dueKey(rest, value)
	case "d":
		err = q.msgID(rest, value)
	case "e":
		err = q.msgIDEnd(rest, value)
	case "u":
		err = q.unique(rest, value)
	default:
		err = errors.New("unknown kind of key")
	}
	if err != nil {
		c.problem("queue %s: key %v: %w", q.name, key[1:], err)
	}
}

func (c *checker) item(q *queue, key tuple.Tuple, value []byte) error {
	id, err := parseID(key, q.fifo)
	if err != nil {
		return err
	}
	if len(key) != idLength(q.fifo) {
		return errors.New("too long for an item")
	}
	c.contents.Items++
	q.all[string(key.Pack())] = true
	if micros := binary.BigEndian.Uint64(id.Random[:]); isOwn(id, micros) {
		q.items[string(key.Pack())] = id.Priority
		q.metas[string(key.Pack())] = id.Random[10]&1 != 0
		q.bytes.values[string(key.Pack())] = value
	}
	return nil
}

// heldItem takes the key of a leased or delayed item.
func (q *queue) heldItem(key tuple.Tuple, value []byte) error {
	id, err := parseID(key, q.fifo)
	if err != nil || len(key) != idLength(q.fifo) {
		return errors.Join(errors.New("malformed id of a held item"), err)
	}
	n, used := binary.Uvarint(value)
	if used <= 0 || n > uint64(len(value)-used) {
		return fmt.Errorf("value %x has no record", value)
	}
	record, err := tuple.Unpack(value[used : used+int(n)])
	version, _ := elementAt[int64](record, 0)
	state, isState := elementAt[int64](record, 1)
	deliveries, _ := elementAt[int64](record, 2)
	fence, _ := elementAt[int64](record, 3)
	due, isTime := elementAt[int64](record, 4)
	what := string(key.Pack())
	switch {
	case err == nil && version == 2:
		err = checkReason(record, 7)
		version = 1
	case err == nil && version == 3:
		var end ending
		end, err = parseEnding(record, 7)
		q.ends[what] = end
		if state == 1 && end.expires > 0 {
			due = min(due, end.expires)
		}
		version = 1
	}
	if err != nil || version != 1 || !isState || state < 0 || state > 1 || fence < 1 || deliveries < 0 || deliveries > fence || !isTime {
		return fmt.Errorf("malformed record %v: %w", record, err)
	}
	q.falls[string(append(tuple.Tuple{"h"}, key...).Pack())] = due
	q.held[what] = state
	if micros := binary.BigEndian.Uint64(id.Random[:]); isOwn(id, micros) {
		q.metas[what] = id.Random[10]&1 != 0
		q.heldOwn[state]++
		q.bytes.values[what] = value[used+int(n):]
	}
	return nil
}

// history takes the key of the history of an item that was leased before.
func (q *queue) history(key tuple.Tuple, value []byte) error {
	content, err := tuple.Unpack(value)
	deliveries, isInt := elementAt[int64](content, 0)
	fence, isFence := elementAt[int64](content, 1)
	if err == nil && len(content) == 4 {
		err = checkReason(content, 3)
		content = content[:3]
	} else if err == nil && len(content) == 6 {
		q.ends[string(key.Pack())], err = parseEnding(content, 3)
		content = content[:3]
	}
	if err != nil || len(content) != 3 || !isInt || !isFence || deliveries < 0 || deliveries > fence {
		return fmt.Errorf("malformed history: value %x", value)
	}
	q.past[string(key.Pack())] = true
	return nil
}

// checkReason checks that the last element of a tuple is the reason of a negative acknowledgement.
func checkReason(t tuple.Tuple, at int) error {
	if reason, ok := elementAt[[]byte](t, at); !ok || len(reason) == 0 || len(reason) > 1024 || len(t) != at+1 {
		return fmt.Errorf("malformed reason %v", t)
	}
	return nil
}

// settings takes the key of the settings.
func (q *queue) settings(key tuple.Tuple, value []byte) error {
	q.config = true
	content, err := tuple.Unpack(value)
	version, _ := elementAt[int64](content, 0)
	if err != nil || len(key) > 0 || version != 1 || len(content)%2 == 0 || len(content) == 1 {
		return fmt.Errorf("malformed settings: value %x", value)
	}
	seen := map[string]bool{}
	for i := 1; i < len(content); i += 2 {
		name, ok := elementAt[string](content, i)
		if !ok || seen[name] || content[i+1] == int64(0) || content[i+1] == "" {
			return fmt.Errorf("setting %v given twice, or a default: %v", content[i], content)
		}
		seen[name] = true
		q.bytes.limited = q.bytes.limited || name == "max_bytes"
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
	q.parts[id] = append(q.parts[id], part)
	q.blobs[id] = append(q.blobs[id], value...)
	return nil
}

func (q *queue) count(key tuple.Tuple, value []byte) error {
	_, isInt := elementAt[int64](key, 0)
	state, _ := elementAt[string](key, 0)
	if len(key) > 1 || len(key) == 1 && state != "leased" && state != "delayed" && (q.fifo || !isInt) {
		return errors.New("unknown number of items")
	}
	if len(value) != 8 {
		return fmt.Errorf("value %x is no number", value)
	}
	n := int64(binary.LittleEndian.Uint64(value))
	if n <= 0 {
		return fmt.Errorf("number of items is %d", n)
	}
	q.counts[string(key.Pack())] = n
	return nil
}

// request takes the key of a staged pop that is in line.
func request(key tuple.Tuple, value []byte) error {
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
	if !isPart || part < 0 || part > 2 || len(request) != 20 || len(key) != 2 {
		return fmt.Errorf("malformed answer: value %x", value)
	}
	if part == 1 {
		q.bytes.staged[string(request)] = value
		return nil
	}
	content, err := tuple.Unpack(value)
	deadline, isTime := elementAt[int64](content, 0)
	if err != nil || !isTime || (part == 2) != (len(content) == 2) {
		return fmt.Errorf("malformed answer: value %x", value)
	}
	q.falls[string(append(tuple.Tuple{"f"}, key...).Pack())] = deadline
	if len(content) <= 2 { // "empty", or a claim
		return nil
	}
	id := content[1:]
	if q.fifo {
		id = id[1:] // has no priority in its keys
	}
	q.staged[string(id.Pack())] = true
	own, err := parseID(id, q.fifo)
	if isOwn(own, binary.BigEndian.Uint64(own.Random[:])) {
		q.bytes.answers[string(request)] = string(id.Pack())
	}
	return err
}

// dueKey takes the key (due, kind, ...) of the time index.
func (q *queue) dueKey(key tuple.Tuple, value []byte) error {
	due, isTime := elementAt[int64](key, 0)
	if kind, isKind := elementAt[string](key, 1); !isTime || !isKind || len(value) > 0 && kind != "x" {
		return fmt.Errorf("malformed entry of the time index: value %x", value)
	}
	what := string(key[1:].Pack())
	if _, twice := q.due[what]; twice {
		return errors.New("there is another entry for the same key")
	}
	q.due[what], q.says[what] = due, string(value)
	return nil
}

func (c *checker) receipt(key tuple.Tuple, value []byte) {
	batcherID, isID := elementAt[[]byte](key, 0)
	_, isBatch := elementAt[int64](key, 1)
	content, err := tuple.Unpack(value)
	if !isID || !isBatch || len(key) != 2 || err != nil || len(content) < 2 {
		c.problem("receipt %v: value %x", key, value)
		return
	}
	c.contents.Receipts[string(batcherID)]++
}

// checkQueue compares the keys of a queue with each other.
func (c *checker) checkQueue(q *queue) {
	counts := map[string]int64{}
	for key, priority := range q.items {
		counts[""]++
		if !q.fifo {
			counts[string(tuple.Tuple{priority}.Pack())]++
		}
		if q.metas[key] != (len(q.parts[key]) > 0) {
			c.problem("queue %s: item %x: says %v about (m) keys and has %d", q.name, key, q.metas[key], len(q.parts[key]))
		}
	}
	for key, parts := range q.parts {
		_, isReady := q.items[key]
		if _, isHeld := q.held[key]; !isReady && !isHeld && !q.staged[key] {
			c.problem("queue %s: %d (m) keys of no item: %x", q.name, len(parts), key)
		}
		for n, part := range parts {
			if part != int64(n) {
				c.problem("queue %s: item %x: (m) keys are numbered %v", q.name, key, parts)
				break
			}
		}
	}
	for key := range q.held {
		if q.all[key] {
			c.problem("queue %s: item %x is both ready and held", q.name, key)
		}
		if q.metas[key] != (len(q.parts[key]) > 0) {
			c.problem("queue %s: held item %x: says %v about (m) keys and has %d", q.name, key, q.metas[key], len(q.parts[key]))
		}
	}
	for key := range q.past {
		if !q.all[key] && !q.staged[key] {
			c.problem("queue %s: a history of no ready item: %x", q.name, key)
		}
	}
	for state, n := range q.heldOwn {
		if n > 0 {
			counts[string(tuple.Tuple{[]string{"leased", "delayed"}[state]}.Pack())] = n
		}
	}
	for key := range counts {
		if q.counts[key] != counts[key] {
			c.problem("queue %s: number for priority %x is %d, there are %d", q.name, key, q.counts[key], counts[key])
		}
	}
	for key := range q.counts {
		if counts[key] == 0 {
			c.problem("queue %s: number for priority %x is %d, there are none", q.name, key, q.counts[key])
		}
	}
	if !q.listed && (q.config || len(q.items) > 0 || q.heldOwn != [2]int64{}) {
		c.problem("queue %s has items or settings and is not listed", q.name)
	}
	c.checkDue(q)
	c.checkDedup(q)
	c.checkBytes(q)
}

// checkExpiry adds what expires to what falls due: ready items do when their ("m") keys say so, with their
// unique keys, and held ones have the same in their records.
func (c *checker) checkExpiry(q *queue) {
	for id := range q.items {
		if end := q.ending(id); end.expires > 0 {
			key, _ := tuple.Unpack([]byte(id))
			what := string(append(tuple.Tuple{"x"}, key...).Pack())
			q.falls[what] = end.expires
			if q.says[what] != end.unique {
				c.problem("queue %s: item %x has the unique key %q, in the time index %q", q.name, id, end.unique, q.says[what])
			}
		}
	}
	for id := range q.metas {
		end := q.ending(id)
		if _, isHeld := q.held[id]; (isHeld || q.past[id]) && q.ends[id] != end {
			c.problem("queue %s: item %x has %+v, but its record says %+v", q.name, id, end, q.ends[id])
		}
	}
}

// stagedExpires reports whether an entry is that of an item of a staged pop, which may have kept it.
func (q *queue) stagedExpires(key string, due int64) bool {
	id, isExpiry := strings.CutPrefix(key, string(tuple.Tuple{"x"}.Pack()))
	return isExpiry && q.staged[id] && q.ending(id).expires == due
}

// checkDue compares the time index of a queue with what falls due there.
func (c *checker) checkDue(q *queue) {
	c.checkExpiry(q)
	for key, at := range q.falls {
		if due, there := q.due[key]; !there || due != at {
			c.problem("queue %s: key %x falls due at %d, in the time index at %d (%t)", q.name, key, at, due, there)
		}
	}
	for key, due := range q.due {
		if _, there := q.falls[key]; !there && !q.stagedExpires(key, due) {
			c.problem("queue %s: time index: at %d falls due %x, which is not there", q.name, due, key)
		}
	}
}

func idLength(fifo bool) int {
	if fifo {
		return 2
	}
	return 3
}

// parseID reads (priority, count, random) or, in a FIFO queue, (index, random).
func parseID(key tuple.Tuple, fifo bool) (id fdbpq.ID, err error) {
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

// isOwn reports whether fdbpq made the id: whether it has the signature, and a time between
// 2020 and 2200.
func isOwn(id fdbpq.ID, micros uint64) bool {
	return bytes.Equal(id.Random[8:10], []byte{0x9d, 0x51}) && micros >= 1577836800e6 && micros < 7258118400e6
}

func elementAt[T any](t tuple.Tuple, i int) (value T, ok bool) {
	if i >= len(t) {
		return value, false
	}
	value, ok = t[i].(T)
	return value, ok
}
