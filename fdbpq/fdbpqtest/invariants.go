// Package fdbpqtest checks stored queues against the layout that package fdbpq documents. It reads
// values with package codec, whose bytes tests pin, and otherwise shares no code with the queues,
// so that it does not repeat their mistakes.
package fdbpqtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Contents counts what a Keyspace holds.
type Contents struct {
	// Items is the number of items in all queues, ready or held, including items of programs with
	// the bare recipe.
	Items int
	// Queues is the number of queues in the lists of queues.
	Queues int
	// Receipts is the number of receipts of each Batcher.
	Receipts map[string]int
	// Missing names the forms of keys that a queue may have and none here has, sorted.
	Missing []string
}

// CheckInvariants reads a Keyspace (see fdbpq.NewKeyspace) in one transaction, and checks that
//
//   - every key decodes, and is of a kind that the layout has;
//   - every item that fdbpq pushed has the ("m") keys that its id calls for, numbered from 0
//     without gaps, and there are no others (held items and items of staged pops count as well);
//   - no item is both ready and held, and only ready items and items of staged pops have a history;
//   - the counters match the items, ready and held, and none is zero;
//   - a queue with max_bytes has the number of its bytes, and no other queue has one;
//   - every item whose id has a group is in the index of that group, ready or held, and nothing
//     else is; the counters of groups match;
//   - every queue with settings, consumers or items that fdbpq pushed is in the list of queues;
//   - every queue with a source has its state, and no other queue has one, except for the consumers
//     that are still to be removed;
//   - settings decode, and none is the default; there are no more consumers than a queue may have,
//     and none is too long;
//   - every key that falls due, and every ready item that expires, has exactly one entry in the
//     time index of its queue, at its time; there are no other entries, but items of staged pops
//     may have theirs;
//   - every item that has moved has an alias from the id of its job to its place, and there are no
//     others;
//   - items that are held, or have a history, expire when their ("m") keys say;
//   - every finished job has a record, an entry of the order and one of the index by end, and
//     perhaps a last place, that agree, and is not in the queue; their counter matches;
//   - every attempt is of an item that has had as many, and no item has more than may be kept;
//   - every joiner that waits is held, and the counters of its members match the items;
//   - every receipt decodes.
//
// The error joins everything that is wrong.
func CheckInvariants(ctx context.Context, db kv.Database, priority, fifo string) (Contents, error) {
	return kv.ReadTransact(ctx, db, func(r kv.Reader) (Contents, error) {
		c := checker{queues: map[string]*queue{}, contents: Contents{Receipts: map[string]int{}}}
		c.missing = allForms()
		for _, root := range []string{priority, fifo} {
			if err := c.readRoot(r, root, root == fifo); err != nil {
				return Contents{}, err
			}
		}
		if err := c.each(r, priority+"-x", c.receipt); err != nil {
			return Contents{}, err
		}
		secret, err := r.Get(tuple.Tuple{priority + "-store", "groups"}.Pack()).Get()
		if err != nil {
			return Contents{}, err
		}
		c.groupSecret = secret

		for _, q := range c.queues {
			c.contents.Items += len(q.all) + len(q.held)
			q.checkQueue()
		}
		c.checkJoins()
		c.contents.Missing = slices.Sorted(maps.Keys(c.missing))

		return c.contents, errors.Join(c.problems...)
	})
}

type checker struct {
	queues      map[string]*queue // by root and name, packed
	contents    Contents
	problems    []error
	groupSecret []byte          // of the hashes of groups; nil without groups
	missing     map[string]bool // forms of keys that were not seen yet
	joins       joins
}

// queue is what one queue holds.
type queue struct {
	checker *checker

	name   string // for messages
	root   string
	fifo   bool
	listed bool           // it is in the list of queues
	config bool           // it has settings
	items  table[int64]   // own items' priority, by the bytes of their id in a key
	parts  table[[]int64] // numbers of ("m") keys, likewise
	blobs  table[[]byte]  // their values, put together, likewise
	counts table[int64]   // by the packed priority, "" for the total
	metas  table[bool]    // whether the id of an own item calls for ("m") keys
	staged table[bool]    // items of staged pops
	held   table[bool]    // held items, by id
	past   table[bool]    // items with a history, by id
	ended  table[int64]   // attempts of an item that may have ended, by id
	trails table[[]int64] // numbers of the attempts that are kept, by id

	messages table[codec.Message] // what blobs say; the Value is the rest of the item's
	ends     table[codec.Lasting] // what records and histories say, by id
	heldOwn  table[int64]         // how many held items fdbpq pushed, by state

	all   table[bool]   // ready items, by id
	falls table[int64]  // when each key falls due, by (kind, ...), packed
	due   table[int64]  // the same, according to the time index
	says  table[string] // the values there

	marks table[[]int64] // entries there for items that may be joiners

	records   table[[2]int64] // bytes and due time of each record, by (kind, name), packed
	summaries table[[2]int64] // the same, according to their summaries

	msgIDs, msgIDEnds table[string] // values of message ids, and of their entries
	uniques           table[string] // unique keys by the item that has them, by id
	aliases           table[string] // places of items that have moved, by the id of the job

	bytes    byteCount
	groups   groups
	finished finished

	consumers           int  // how many it has
	hasSource, hasState bool // by its settings, and by the state of a source

	trail int64 // Settings.Trail
}

// table has something by key. It is made with the first key.
type table[V any] map[string]V

func (t *table[V]) set(key string, value V) {
	if *t == nil {
		*t = table[V]{}
	}
	(*t)[key] = value
}

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

func (q *queue) problem(format string, args ...any) {
	q.checker.problem("queue %s: %w", q.name, fmt.Errorf(format, args...))
}

func (c *checker) queue(root string, fifo bool, name string) *queue {
	id := string(tuple.Tuple{root, name}.Pack())
	q := c.queues[id]
	if q == nil {
		q = &queue{checker: c, root: root, fifo: fifo}
		q.name = c.queueNamed(q, name)
		c.queues[id] = q
	}

	return q
}

// each calls take for all keys that begin with prefix, with the rest of the key.
func (c *checker) each(r kv.Reader, prefix string, take func(key tuple.Tuple, value []byte)) error {
	space := tuple.NewSubspace(tuple.Tuple{prefix})
	var rest kv.Range
	rest.Begin, rest.End = space.Range()
	for {
		pairs, err := r.GetRange(rest, kv.RangeOptions{Limit: 1000}).Get()
		if err != nil {
			return err
		}

		for _, pair := range pairs {
			key, err := space.Unpack(pair.Key)
			if err != nil {
				c.problem("key %x: %w", pair.Key, err)
				continue
			}
			take(key, pair.Value)
			rest.Begin = kv.SingleKey(pair.Key).End
		}

		if len(pairs) < 1000 {
			return nil
		}
	}
}

func (c *checker) readRoot(r kv.Reader, root string, fifo bool) error {
	err := c.each(r, root, func(key tuple.Tuple, value []byte) {
		c.queueKey(root, fifo, key, value)
	})
	if err != nil {
		return err
	}

	return c.each(r, root+"-queues", func(key tuple.Tuple, value []byte) {
		if !fits(key, "s", fifo) {
			c.problem("list of queues: key %v", key)
			return
		}

		c.contents.Queues++
		name := key[0].(string)
		c.queue(root, fifo, name).listed = true
		if _, err := codec.ParseListEntry(value); err != nil {
			c.problem("%q: %w", name, err)
		}
	})
}

// queueKey takes the key (name, kind, ...) below a root.
func (c *checker) queueKey(root string, fifo bool, key tuple.Tuple, value []byte) {
	if len(key) < 2 || !fits(key[:2], "ss", fifo) {
		c.problem("%s: key %v: want (name, kind, ...)", root, key)
		return
	}

	q, kind, rest := c.queue(root, fifo, key[0].(string)), key[1].(string), key[2:]
	row := kinds[kind]
	switch {
	case row.take == nil:
		q.problem("key %v: unknown kind of key", key[1:])
		return
	case !fits(rest, row.keys, fifo):
		q.problem("key %v: want %q behind its kind", key[1:], row.keys)
		return
	}
	for _, form := range strings.Split(row.keys, "|") {
		if fits(rest, form, fifo) {
			delete(c.missing, kind+" "+form)
		}
	}
	if err := row.take(q, rest, value); err != nil {
		q.problem("key %v: %w", key[1:], err)
	}
}

// kinds has for each kind of keys what follows it, see fits, and the function that takes such keys.
var kinds = map[string]struct {
	keys string
	take func(q *queue, key tuple.Tuple, value []byte) error
}{
	"i": {"pir", (*queue).item},
	"h": {"pir", (*queue).heldItem},
	"a": {"pir", (*queue).history},
	"m": {"piri", (*queue).part},
	"n": {"|p|s", (*queue).count},
	"b": {"", (*queue).countKey},
	"c": {"", (*queue).settings},
	"p": {"s", (*queue).consumer},
	"k": {"", (*queue).source},
	"s": {"s", (*queue).schedule},
	"l": {"ss", (*queue).summary},
	"t": {"ispir|isir|iss|is|isi", (*queue).dueKey},
	"d": {"b", (*queue).msgID},
	"e": {"ib", (*queue).msgIDEnd},
	"u": {"b", (*queue).unique},
	"~": {"pir", (*queue).alias},
	"r": {"ir", (*queue).request},
	"f": {"ir", (*queue).answer},
	"w": {"ipir", groupRow("w")},
	"y": {"ipir", groupRow("y")},
	"z": {"ii", (*queue).groupCount},
	"v": {"p", (*queue).turn},
	"q": {"|i", (*queue).bucket},
	"g": {"pir|piri", (*queue).finishedKey},
	"o": {"|ipir", (*queue).finishedOrder},
	"j": {"ipir", (*queue).finishedEnd},
	"J": {"pir|piri|sspir", (*queue).join},
	"A": {"piri", (*queue).attempt},
}

// allForms returns all rows of kinds, with each of their forms.
func allForms() map[string]bool {
	all := map[string]bool{}
	for kind, row := range kinds {
		for _, form := range strings.Split(row.keys, "|") {
			all[kind+" "+form] = true
		}
	}
	return all
}

// fits reports whether the elements of a key are of one of the forms, which a bar separates: i is
// an integer, p a priority, which no key of a FIFO queue has, s a string, b bytes, and r the random
// part of an id.
func fits(key tuple.Tuple, forms string, fifo bool) bool {
	priority := "i"
	if fifo {
		priority = ""
	}

	form := ""
	for _, element := range key {
		kind := "?"
		switch e := element.(type) {
		case int64:
			kind = "i"
		case string:
			kind = "s"
		case []byte:
			kind = "b"
			if len(e) == codec.RandomSize {
				kind = "r"
			}
		}
		form += kind
	}

	all := strings.Split(strings.ReplaceAll(forms, "p", priority), "|")
	bytes := strings.ReplaceAll(form, "r", "b")
	return slices.Contains(all, form) || slices.Contains(all, bytes)
}

func (c *checker) receipt(key tuple.Tuple, value []byte) {
	content, err := tuple.Unpack(value)
	if fits(key, "s", false) && key[0] == "probe" && err == nil {
		return // of fdbpq.Probe
	}
	if !fits(key, "bi", false) || err != nil || len(content) < 2 {
		c.problem("receipt %v: value %x", key, value)
		return
	}

	c.contents.Receipts[string(key[0].([]byte))]++
}
