package migrate

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// copyRecord is the record of a store that is being filled, in place of the usual record: how
// far the copy is.
type copyRecord struct {
	id, source  string // of the target and its source
	area        int64  // the area that is being copied, or restart
	next        []byte // where to go on in it, nil at its beginning
	keys, bytes int64  // copied so far
}

// restart says in copyRecord.area that the copy is of no use.
const restart = -1

// encode begins like the record of a store that is ready.
func (c *copyRecord) encode(k *codec.Space) []byte {
	return tuple.Tuple{int64(codec.UnfinishedVersion), c.id, k.Priority.Root, k.Fifo.Root, k.Format.String(),
		c.source, c.area, c.next, c.keys, c.bytes}.Pack()
}

func parseCopyRecord(value []byte) (c copyRecord, err error) {
	t, err := tuple.Unpack(value)
	ok := err == nil && len(t) == 10
	if ok {
		ok = element(t[1], &c.id) && element(t[5], &c.source) && element(t[6], &c.area) &&
			element(t[7], &c.next) && element(t[8], &c.keys) && element(t[9], &c.bytes)
	}
	if !ok {
		return c, fmt.Errorf("%w: record of a migration %x", codec.ErrCorrupt, value)
	}
	return c, nil
}

func element[T any](from any, to *T) (ok bool) {
	*to, ok = from.(T)
	return ok
}
