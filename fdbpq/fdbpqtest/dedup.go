package fdbpqtest

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// msgID takes the key of a message id.
func (q *queue) msgID(key tuple.Tuple, value []byte) error {
	seen, err := codec.ParseSeen(value)
	q.msgIDs.set(string(tuple.Tuple{seen.Until.UnixMicro(), key[0]}.Pack()), string(value))
	return err
}

// msgIDEnd takes the key (until, message id).
func (q *queue) msgIDEnd(key tuple.Tuple, value []byte) error {
	q.msgIDEnds.set(string(key.Pack()), string(value))
	return nil
}

// unique takes the key of a unique key.
func (q *queue) unique(key tuple.Tuple, value []byte) error {
	seen, err := codec.ParseUnique(value)
	if err != nil {
		return err
	}

	item := q.idKey(&seen.ID)
	if other, twice := q.uniques[item]; twice {
		return fmt.Errorf("its item has another unique key: %q", other)
	}

	q.uniques.set(item, string(key[0].([]byte)))
	return nil
}

// alias takes the key from the id of a job to its place.
func (q *queue) alias(key tuple.Tuple, value []byte) error {
	place, err := codec.ParseAlias(value)
	q.aliases.set(string(key.Pack()), q.idKey(&place))
	return err
}

// checkAliases compares the aliases with the items that have moved.
func (q *queue) checkAliases() {
	want := table[string]{}
	for id := range q.messages {
		first := q.messages[id].First
		if first == nil {
			continue
		}
		job := q.idKey(first)
		if other, twice := want[job]; twice {
			q.problem("job %x is at two places: %x and %x", job, id, other)
		}
		want.set(job, id)
	}
	compare(q, "alias", q.aliases, want)
}

// checkDedup compares message ids with their entries, and unique keys with items.
func (q *queue) checkDedup() {
	compare(q, "ends of message ids", q.msgIDEnds, q.msgIDs)
	for id := range q.metas {
		if key := q.messages[id].Unique; key != q.uniques[id] {
			q.problem("item %x has the unique key %q, stored %q", id, key, q.uniques[id])
		}
	}

	for item, key := range q.uniques {
		if !q.held[item] && !q.all[item] && !q.staged[item] {
			q.problem("unique key %q of no item: %x", key, item)
		}
	}
}
