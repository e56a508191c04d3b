package fdbpqtest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// groups is the index of items by group, as it is stored and as the items call for.
type groups struct {
	rows, wantRows     map[string]bool  // by kind and the rest of the key, packed
	counts, wantCounts map[string]int64 // by the rest of the key, packed
	buckets            map[string]int64 // when rows of rates fall due, by (kind, ...), packed
	bucketsDue         map[string]bool  // the same, and the time, according to the time index
	hashes             map[string]int64 // by item
}

func newGroups() groups {
	return groups{
		rows: map[string]bool{}, wantRows: map[string]bool{}, counts: map[string]int64{}, wantCounts: map[string]int64{},
		hashes: map[string]int64{}, buckets: map[string]int64{}, bucketsDue: map[string]bool{},
	}
}

// has takes an item that fdbpq pushed. key is its id as in its key.
func (g *groups) has(q *queue, kind string, id fdbpq.ID, key tuple.Tuple, leased bool) {
	if id.Random[10]&2 == 0 {
		return
	}
	hash := int64(binary.BigEndian.Uint64(append([]byte{0, 0, 0}, id.Random[11:16]...)))
	g.hashes[string(key.Pack())] = hash
	g.wantRows[string(append(tuple.Tuple{kind, hash}, key...).Pack())] = true
	switch {
	case kind == "w" && q.fifo:
		g.wantCounts[string(tuple.Tuple{hash, int64(0)}.Pack())]++
	case kind == "w":
		g.wantCounts[string(tuple.Tuple{hash, int64(0), id.Priority}.Pack())]++
	case leased:
		g.wantCounts[string(tuple.Tuple{hash, int64(1)}.Pack())]++
	}
}

func (q *queue) groupReady(key tuple.Tuple, value []byte) error { return q.groupRow("w", key, value) }

func (q *queue) groupHeld(key tuple.Tuple, value []byte) error { return q.groupRow("y", key, value) }

func (q *queue) groupRow(kind string, key tuple.Tuple, value []byte) error {
	if len(value) > 0 {
		return fmt.Errorf("value %x in the index of a group", value)
	}
	q.groups.rows[string(append(tuple.Tuple{kind}, key...).Pack())] = true
	return nil
}

func (q *queue) groupCount(key tuple.Tuple, value []byte) error {
	if len(value) != 8 {
		return fmt.Errorf("value %x is no number", value)
	}
	q.groups.counts[string(key.Pack())] = int64(binary.LittleEndian.Uint64(value))
	return nil
}

// bucket takes the key of a rate. It falls due at its time, in nanoseconds, or less than a microsecond later.
func (q *queue) bucket(key tuple.Tuple, value []byte) error {
	content, err := tuple.Unpack(value)
	full, isTime := elementAt[int64](content, 0)
	_, isHash := elementAt[int64](key, 0)
	if err != nil || !isTime || len(content) != 1 || len(key) > 1 || len(key) == 1 && !isHash {
		return fmt.Errorf("malformed rate: value %x", value)
	}
	q.groups.buckets[string(append(tuple.Tuple{"q"}, key...).Pack())] = (full + 999) / 1000
	return nil
}

// turn takes the key that says how far groups have been served. It may say anything.
func (q *queue) turn(key tuple.Tuple, value []byte) error {
	count, err := tuple.Unpack(value)
	_, isCount := elementAt[int64](count, 0)
	_, isPriority := elementAt[int64](key, 0)
	if err != nil || !isCount || len(count) != 1 || q.fifo && len(key) > 0 || !q.fifo && (!isPriority || len(key) != 1) {
		return errors.New("malformed count of what was served")
	}
	return nil
}

// checkGroups compares the index with the items, and the groups of items with their headers.
func (c *checker) checkGroups(q *queue) {
	g := &q.groups
	compare(c, q, "index of groups", g.rows, g.wantRows)
	compare(c, q, "counter of groups", g.counts, g.wantCounts)
	for key, at := range g.buckets {
		if !g.bucketsDue[fmt.Sprint(key, at)] {
			c.problem("queue %s: rate %x falls due at %d, but not in the time index", q.name, key, at)
		}
	}
	for id := range q.metas {
		group, hash := groupOf(q.blobs[id]), g.hashes[id]
		if sum := sha256.Sum256([]byte(group)); group != "" && hash != max(int64(binary.BigEndian.Uint64(append([]byte{0, 0, 0}, sum[:5]...))), 1) || group == "" && hash != 0 {
			c.problem("queue %s: item %x of the group %q has the hash %x", q.name, id, group, hash)
		}
	}
}

// groupOf returns the group that the ("m") keys of an item name, "" for none.
func groupOf(blob []byte) string {
	head, _ := splitRecord(blob)
	for _, element := range head {
		if header, ok := element.(tuple.Tuple); ok && len(header) == 2 {
			name, _ := elementAt[[]byte](header, 0)
			if value, _ := elementAt[[]byte](header, 1); string(name) == "Pq-Group" {
				return string(value)
			}
		}
	}
	return ""
}
