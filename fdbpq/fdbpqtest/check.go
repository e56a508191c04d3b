package fdbpqtest

import (
	"maps"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// checkQueue compares the keys of a queue with each other.
func (q *queue) checkQueue() {
	for id, blob := range q.blobs {
		message, rest, err := codec.DecodeMeta([]kv.KeyValue{{Value: blob}})
		if err != nil {
			q.problem("item %x: %w", id, err)
		}
		message.Value = rest
		q.messages.set(id, message)
	}

	for key := range q.held {
		if q.all[key] {
			q.problem("item %x is both ready and held", key)
		}
	}

	for key := range q.past {
		if !q.all[key] && !q.staged[key] {
			q.problem("a history of no ready item: %x", key)
		}
	}

	for key, numbers := range q.trails {
		last := numbers[len(numbers)-1]
		if last > q.ended[key] || int64(len(numbers)) > q.trail {
			q.problem("item %x: %d attempts have ended, has numbers %v of at most %d", key,
				q.ended[key], numbers, q.trail)
		}
	}

	if q.hasSource != q.hasState {
		q.problem("source %v, state of one %v", q.hasSource, q.hasState)
	}
	used := len(q.items)+len(q.heldOwn)+len(q.finished.records) > 0
	if !q.listed && (q.config || q.consumers > 0 || used) {
		q.problem("has items, finished jobs, settings or consumers and is not listed")
	}

	q.checkParts()
	q.checkCounts()
	q.checkDue()
	q.checkDedup()
	q.checkAliases()
	q.checkBytes()
	q.checkGroups()
	q.checkFinished()
}

// checkParts compares the ("m") keys with the ids that call for them.
func (q *queue) checkParts() {
	for key, wants := range q.metas {
		if n := len(q.parts[key]); wants != (n > 0) {
			q.problem("item %x: says %v about (m) keys and has %d", key, wants, n)
		}
	}

	for key, parts := range q.parts {
		if _, isOwn := q.metas[key]; !isOwn && !q.staged[key] {
			q.problem("%d (m) keys of no item: %x", len(parts), key)
		}

		for n, part := range parts {
			if part != int64(n) {
				q.problem("item %x: (m) keys are numbered %v", key, parts)
				break
			}
		}
	}
}

// checkCounts compares the counters with the items.
func (q *queue) checkCounts() {
	counts := map[string]int64{}
	for _, priority := range q.items {
		counts[""]++
		if !q.fifo {
			counts[string(tuple.Tuple{priority}.Pack())]++
		}
	}

	for state, n := range q.heldOwn {
		counts[string(tuple.Tuple{state}.Pack())] = n
	}

	compare(q, "number of items", q.counts, counts)
}

// checkExpiry adds what expires to what falls due: ready items do when their ("m") keys say so,
// with their unique keys, and held ones have the same in their records.
func (q *queue) checkExpiry() {
	for id := range q.items {
		if m := q.messages[id]; !m.Expires.IsZero() {
			key, _ := tuple.Unpack([]byte(id))
			what := packed("x", key)
			q.falls.set(what, m.Expires.UnixMicro())
			if says := q.says[what]; says != m.Unique {
				q.problem("item %x has unique key %q, in the time index %q", id, m.Unique, says)
			}
		}
	}

	for id := range q.metas {
		m := q.messages[id]
		if end := codec.LastingOf(&m); (q.held[id] || q.past[id]) && q.ends[id] != end {
			q.problem("item %x has %+v, but its record says %+v", id, end, q.ends[id])
		}
	}
}

// checkDue compares the time index of a queue with what falls due there.
func (q *queue) checkDue() {
	q.checkExpiry()
	q.dropMarks()
	maps.DeleteFunc(q.due, func(key string, due int64) bool {
		// An item that a staged pop has taken may have kept its entry.
		_, falls := q.falls[key]
		id, isExpiry := strings.CutPrefix(key, string(tuple.Tuple{"x"}.Pack()))
		return !falls && isExpiry && q.staged[id] && q.messages[id].Expires.UnixMicro() == due
	})
	compare(q, "time index", q.due, q.falls)
	compare(q, "summaries of records", q.summaries, q.records)
}

// compare adds a problem for each key with which the store differs from what it has to hold.
func compare[V comparable](q *queue, what string, stored, want map[string]V) {
	all := map[string]V{}
	maps.Copy(all, stored)
	maps.Copy(all, want)
	for key := range all {
		has, found := stored[key]
		if wants, wanted := want[key]; found != wanted || has != wants {
			q.problem("%s: %x has %v (%t), want %v (%t)", what, key, has, found, wants, wanted)
		}
	}
}
