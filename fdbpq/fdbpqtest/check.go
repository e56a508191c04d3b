package fdbpqtest

import (
	"maps"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// checkQueue compares the keys of a queue with each other.
func (c *checker) checkQueue(q *queue) {
	for key := range q.held {
		if q.all[key] {
			c.problem("queue %s: item %x is both ready and held", q.name, key)
		}
	}
	for key := range q.past {
		if !q.all[key] && !q.staged[key] {
			c.problem("queue %s: a history of no ready item: %x", q.name, key)
		}
	}
	if q.hasSource != q.hasState {
		c.problem("queue %s: source %v, state of one %v", q.name, q.hasSource, q.hasState)
	}
	if !q.listed && (q.config || q.consumers > 0 || len(q.items) > 0 || q.heldOwn != [2]int64{}) {
		c.problem("queue %s has items, settings or consumers and is not listed", q.name)
	}

	c.checkParts(q)
	c.checkCounts(q)
	c.checkDue(q)
	c.checkDedup(q)
	c.checkBytes(q)
	c.checkGroups(q)
}

// checkParts compares the ("m") keys with the ids that call for them.
func (c *checker) checkParts(q *queue) {
	for key, wants := range q.metas {
		if wants != (len(q.parts[key]) > 0) {
			c.problem("queue %s: item %x: says %v about (m) keys and has %d", q.name, key, wants, len(q.parts[key]))
		}
	}
	for key, parts := range q.parts {
		if _, isOwn := q.metas[key]; !isOwn && !q.staged[key] {
			c.problem("queue %s: %d (m) keys of no item: %x", q.name, len(parts), key)
		}
		for n, part := range parts {
			if part != int64(n) {
				c.problem("queue %s: item %x: (m) keys are numbered %v", q.name, key, parts)
				break
			}
		}
	}
}

// checkCounts compares the counters with the items.
func (c *checker) checkCounts(q *queue) {
	counts := map[string]int64{}
	for _, priority := range q.items {
		counts[""]++
		if !q.fifo {
			counts[string(tuple.Tuple{priority}.Pack())]++
		}
	}
	for state, n := range q.heldOwn {
		if n > 0 {
			counts[string(tuple.Tuple{[]string{"leased", "delayed"}[state]}.Pack())] = n
		}
	}
	compare(c, q, "number of items", q.counts, counts)
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
	maps.DeleteFunc(q.due, func(key string, due int64) bool {
		_, falls := q.falls[key]
		return !falls && q.stagedExpires(key, due)
	})
	compare(c, q, "time index", q.due, q.falls)
}

// compare adds a problem for each key with which the store differs from what it has to hold.
func compare[V comparable](c *checker, q *queue, what string, stored, want map[string]V) {
	all := maps.Clone(stored)
	maps.Copy(all, want)
	for key := range all {
		has, found := stored[key]
		if wants, wanted := want[key]; found != wanted || has != wants {
			c.problem("queue %s: %s: %x has %v (%t), want %v (%t)", q.name, what, key, has, found, wants, wanted)
		}
	}
}
