package fdbpqtest

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// checkUnique checks that a tuple ends with a reason, which may be empty, and a unique key.
func checkUnique(t tuple.Tuple, at int) error {
	reason, isReason := elementAt[[]byte](t, at)
	key, isKey := elementAt[[]byte](t, at+1)
	if !isReason || !isKey || len(reason) > 1024 || len(key) == 0 || len(key) > 512 || len(t) != at+2 {
		return fmt.Errorf("malformed reason or unique key %v", t)
	}
	return nil
}

// msgID takes the key of a message id.
func (q *queue) msgID(key tuple.Tuple, value []byte) error {
	id, isID := elementAt[[]byte](key, 0)
	content, err := tuple.Unpack(value)
	until, isTime := elementAt[int64](content, 3)
	if err != nil || !isID || !isTime || len(key) != 1 || len(content) != 4 {
		return fmt.Errorf("malformed message id: value %x", value)
	}
	if _, err := parseID(content[:3], false); err != nil {
		return err
	}
	q.msgIDs[string(tuple.Tuple{until, id}.Pack())] = string(value)
	return nil
}

// msgIDEnd takes the key (until, message id).
func (q *queue) msgIDEnd(key tuple.Tuple, value []byte) error {
	_, isTime := elementAt[int64](key, 0)
	if _, isID := elementAt[[]byte](key, 1); !isTime || !isID || len(key) != 2 {
		return errors.New("malformed entry of a message id")
	}
	q.msgIDEnds[string(key.Pack())] = string(value)
	return nil
}

// unique takes the key of a unique key.
func (q *queue) unique(key tuple.Tuple, value []byte) error {
	unique, isKey := elementAt[[]byte](key, 0)
	content, err := tuple.Unpack(value)
	if err == nil {
		_, err = parseID(content, false)
	}
	if err != nil || !isKey || len(key) != 1 || len(content) != 3 {
		return fmt.Errorf("malformed unique key: value %x: %w", value, err)
	}
	if q.fifo {
		content = content[1:]
	}
	item := string(content.Pack())
	if other, twice := q.uniques[item]; twice {
		return fmt.Errorf("its item has another unique key: %q", other)
	}
	q.uniques[item] = string(unique)
	return nil
}

// checkDedup compares message ids with their entries, and unique keys with items.
func (c *checker) checkDedup(q *queue) {
	for key, value := range q.msgIDs {
		if entry, there := q.msgIDEnds[key]; !there || entry != value {
			c.problem("queue %s: message id %x: %x, and its entry %x (%t)", q.name, key, value, entry, there)
		}
	}
	for key := range q.msgIDEnds {
		if _, there := q.msgIDs[key]; !there {
			c.problem("queue %s: an entry of no message id: %x", q.name, key)
		}
	}
	for item, key := range q.uniques {
		if _, isHeld := q.held[item]; !isHeld && !q.all[item] && !q.staged[item] {
			c.problem("queue %s: unique key %q of no item: %x", q.name, key, item)
		}
	}
}
