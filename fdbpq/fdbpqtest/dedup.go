package fdbpqtest

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// ending is how a record or a history ends, and the same by its ("m") keys: when the item expires,
// 0 if it does not, and its unique key.
type ending struct {
	expires int64
	unique  string
}

// parseEnding reads the end of a tuple: a reason, which may be empty, and an ending, which may not.
func parseEnding(t tuple.Tuple, at int) (ending, error) {
	reason, isReason := elementAt[[]byte](t, at)
	expires, isTime := elementAt[int64](t, at+1)
	key, isKey := elementAt[[]byte](t, at+2)
	complete := isReason && isTime && isKey && len(t) == at+3
	isEmpty := expires == 0 && len(key) == 0
	if !complete || isEmpty || len(reason) > 1024 || expires < 0 || len(key) > 512 {
		return ending{}, fmt.Errorf("malformed reason, expiry or unique key %v", t)
	}

	return ending{expires, string(key)}, nil
}

// parseHolder reads the end of the record of a lease with a holder: a reason and an ending, both of
// which may be empty, the holder's name, and when the lease began.
func parseHolder(t tuple.Tuple, at int, state int64) (e ending, err error) {
	reason, isReason := elementAt[[]byte](t, at)
	expires, isTime := elementAt[int64](t, at+1)
	key, isKey := elementAt[[]byte](t, at+2)
	name, isName := elementAt[[]byte](t, at+3)
	since, isSince := elementAt[int64](t, at+4)

	if !isReason || !isTime || !isKey || len(reason) > 1024 || expires < 0 || len(key) > 512 ||
		!isName || len(name) == 0 || len(name) > 128 || !isSince || since <= 0 ||
		len(t) != at+5 || state != 0 {
		return ending{}, fmt.Errorf("malformed lease with a holder %v", t)
	}
	return ending{expires, string(key)}, nil
}

// ending returns the ending of an item according to its ("m") keys.
func (q *queue) ending(id string) (e ending) {
	head, _ := splitRecord(q.blobs[id])
	if version, _ := elementAt[int64](head, 0); version != 3 {
		return e
	}

	list, _ := elementAt[tuple.Tuple](head, 1)
	for ; len(list) > 1; list = list[2:] {
		switch list[0] {
		case "expires":
			e.expires, _ = elementAt[int64](list, 1)
		case "unique":
			key, _ := elementAt[[]byte](list, 1)
			e.unique = string(key)
		}
	}

	return e
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

	q.msgIDs.set(string(tuple.Tuple{until, id}.Pack()), string(value))
	return nil
}

// msgIDEnd takes the key (until, message id).
func (q *queue) msgIDEnd(key tuple.Tuple, value []byte) error {
	_, isTime := elementAt[int64](key, 0)
	if _, isID := elementAt[[]byte](key, 1); !isTime || !isID || len(key) != 2 {
		return errors.New("malformed entry of a message id")
	}
	q.msgIDEnds.set(string(key.Pack()), string(value))
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

	q.uniques.set(item, string(unique))
	return nil
}

// checkDedup compares message ids with their entries, and unique keys with items.
func (q *queue) checkDedup() {
	compare(q, "ends of message ids", q.msgIDEnds, q.msgIDs)
	for id := range q.metas {
		if e := q.ending(id); e.unique != q.uniques[id] {
			q.problem("item %x has the unique key %q, stored %q", id, e.unique, q.uniques[id])
		}
	}

	for item, key := range q.uniques {
		if _, isHeld := q.held[item]; !isHeld && !q.all[item] && !q.staged[item] {
			q.problem("unique key %q of no item: %x", key, item)
		}
	}
}
