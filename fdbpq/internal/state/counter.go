package state

import (
	"encoding/binary"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func ReadCounter(value kv.Future[[]byte]) (int64, error) {
	encoded, err := value.Get()
	if err != nil {
		return 0, err
	}
	return ParseLength(encoded)
}

func ParseLength(value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: item counter has %d bytes: want 8", codec.ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

var zeroCounter = make([]byte, 8)

// addToCounter adds to a counter, and removes it if it falls to zero, so that a queue with
// many priorities leaves nothing behind. A transaction that adds and subtracts adds first.
func addToCounter(tx kv.Transaction, key []byte, delta int64) {
	if delta == 0 {
		return
	}
	tx.Add(key, delta)
	if delta < 0 {
		tx.CompareAndClear(key, zeroCounter)
	}
}
