package fdbpqtest

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// groups is the index of items by group, as it is stored and as the items call for.
type groups struct {
	rows, wantRows     table[bool]  // by kind and the rest of the key, packed
	counts, wantCounts table[int64] // by kind and the rest of the key, packed
	buckets            table[int64] // when rows of rates fall due, by (kind, ...), packed
	bucketsDue         table[bool]  // the same, and the time, according to the time index
	hashes             table[int64] // by item
}

// has takes an item that fdbpq pushed. key is its id as in its key.
func (g *groups) has(kind string, id fdbpq.ID, key tuple.Tuple, leased bool) {
	group := codec.GroupIn(&id)
	if group == codec.NotIndexed {
		return
	}

	hash := int64(group)
	g.hashes.set(string(key.Pack()), hash)
	g.wantRows.set(string(append(tuple.Tuple{kind, hash}, key...).Pack()), true)

	count := func(key ...any) {
		counter := string(tuple.Tuple(key).Pack())
		g.wantCounts.set(counter, g.wantCounts[counter]+1)
	}
	switch {
	case kind == "w":
		count("z", hash, int64(0))
	case leased:
		count("z", hash, int64(1))
	}
}

// groupRow returns what takes the keys of ready items by group, or of held ones.
func groupRow(kind string) func(q *queue, key tuple.Tuple, value []byte) error {
	return func(q *queue, key tuple.Tuple, value []byte) error {
		q.groups.rows.set(packed(kind, key), true)
		if len(value) > 0 {
			return fmt.Errorf("value %x in the index of a group", value)
		}
		return nil
	}
}

// groupCount takes a counter of a group.
func (q *queue) groupCount(key tuple.Tuple, value []byte) error {
	n, err := number(value)
	q.groups.counts.set(packed("z", key), n)
	return err
}

// bucket takes the key of a rate. It falls due at its time, in nanoseconds, or less than a
// microsecond later.
func (q *queue) bucket(key tuple.Tuple, value []byte) error {
	if codec.ParseCount(value, -1) < 0 {
		return fmt.Errorf("malformed rate: value %x", value)
	}
	q.groups.buckets.set(packed("q", key), codec.BucketRowDue(value).UnixMicro())
	return nil
}

// turn takes the key that says how far groups have been served. It may name any place.
func (q *queue) turn(_ tuple.Tuple, value []byte) error {
	if codec.ParseTurnItem(value) == codec.ParseTurnItem(nil) {
		return errors.New("malformed count of what was served")
	}
	return nil
}

// checkGroups compares the index with the items, and the groups of items with their headers.
func (q *queue) checkGroups() {
	g := &q.groups
	compare(q, "index of groups", g.rows, g.wantRows)
	compare(q, "counter of groups", g.counts, g.wantCounts)
	for key, at := range g.buckets {
		if !g.bucketsDue[fmt.Sprint(key, at)] {
			q.problem("rate %x falls due at %d, but not in the time index", key, at)
		}
	}

	for id := range q.metas {
		group, want := q.messages[id].Group(), codec.NoGroup
		if group != "" {
			want = codec.HashGroup(q.checker.groupSecret, group)
		}
		if hash := g.hashes[id]; hash != int64(want) {
			q.problem("item %x of the group %q has the hash %x", id, group, hash)
		}
	}
}
