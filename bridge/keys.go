package bridge

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// takeKeys moves the message id and the unique key from the headers of a push to its message.
// Errors wrap subjects.ErrKey.
func takeKeys(h nats.Header, m *fdbpq.Message) (err error) {
	if m.MsgID, m.Unique, err = subjects.KeysOfPush(h); err != nil {
		return err
	}
	delete(h, subjects.HeaderMsgID)
	delete(h, subjects.HeaderUnique)
	return nil
}

// setKeys is the reverse. They were the pusher's headers.
func setKeys(h nats.Header, m *fdbpq.Message) {
	if m.MsgID != "" {
		h[subjects.HeaderMsgID] = []string{m.MsgID}
	}
	if m.Unique != "" {
		h[subjects.HeaderUnique] = []string{m.Unique}
	}
}

// keysSize is how many bytes setKeys adds to the message of an item.
func keysSize(m *fdbpq.Message) int {
	keys := nats.Header{}
	if setKeys(keys, m); len(keys) == 0 {
		return 0
	}
	if len(m.Headers) > 0 {
		return wire.LinesSize(keys)
	}
	return wire.HeaderSize(keys)
}

// keysMemory is about how many bytes more than their own keys take in a transaction, which writes
// the keys of the store several times: with conflict ranges, and to remove what is over.
func keysMemory(m *fdbpq.Message) (n int) {
	const writes, rest = 20, 64
	for _, key := range []string{m.MsgID, m.Unique} {
		if key != "" {
			n += writes * (len(key) + rest)
		}
	}
	return n
}

// maxPushedReply is the largest size of the reply to a batch of pushes.
func maxPushedReply(ops []fdbpq.Op) int {
	size := subjects.MaxPushedBatch(len(ops))
	if slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return op.Message.MsgID != "" || op.Message.Unique != "" }) {
		size += subjects.MaxDuplicates(len(ops))
	}
	return size
}

// duplicatesOf returns which pushes of a batch changed nothing, and the time of one that did if
// there is one.
func duplicatesOf(results []fdbpq.Result) (at time.Time, duplicates []int) {
	at = results[0].Item.PushedAt
	for i := range results {
		if results[i].Duplicate {
			duplicates = append(duplicates, i)
		} else {
			at = results[i].Item.PushedAt
		}
	}
	return at, duplicates
}
