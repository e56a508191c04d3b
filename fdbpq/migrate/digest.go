package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Digest sums up a Keyspace. Two Keyspaces with the same roots are the same if their digests are.
type Digest struct {
	Queues int64 // with any keys
	Items  int64 // ready, leased and delayed, and those of programs with the bare recipe
	Keys   int64 // without the record of the store
	Bytes  int64 // of keys and values
	Sum    [sha256.Size]byte
}

// String implements fmt.Stringer.
func (d Digest) String() string {
	return fmt.Sprintf("%d items in %d queues, %d keys, %d bytes, checksum %x",
		d.Items, d.Queues, d.Keys, d.Bytes, d.Sum[:8])
}

// digest reads all areas, the last one first: see codec.Space.DataAreas.
func (m *migration) digest(ctx context.Context, db kv.Database, read func(Digest)) (Digest, error) {
	var d Digest
	sum := sha256.New()
	priority := string(m.k.Base.Pack(tuple.Tuple{m.k.Priority.Root}))
	fifo := string(m.k.Base.Pack(tuple.Tuple{m.k.Fifo.Root}))

	queue := "" // prefix of the last one
	for _, area := range slices.Backward(m.areas) {
		err := scan(ctx, db, area, func(pairs []kv.KeyValue) error {
			var lengths [8]byte
			for _, pair := range pairs {
				binary.BigEndian.PutUint32(lengths[:], uint32(len(pair.Key)))
				binary.BigEndian.PutUint32(lengths[4:], uint32(len(pair.Value)))
				sum.Write(lengths[:])
				sum.Write(pair.Key)
				sum.Write(pair.Value)
				d.Keys++
				d.Bytes += int64(len(pair.Key) + len(pair.Value))
				d.count(string(pair.Key), priority, &queue)
				d.count(string(pair.Key), fifo, &queue)
			}
			read(d)
			return nil
		})
		if err != nil {
			return Digest{}, err
		}
	}

	sum.Sum(d.Sum[:0])
	return d, nil
}

// count counts the queue and the item of a key below a root. last is the prefix of the queue of the
// key before.
func (d *Digest) count(key, root string, last *string) {
	rest, inside := strings.CutPrefix(key, root)
	if !inside {
		return
	}

	_, kind, err := tuple.DecodeString([]byte(rest))
	if err != nil {
		return
	}

	if queue := key[:len(key)-len(kind)]; queue != *last {
		*last = queue
		d.Queues++
	}

	name, _, err := tuple.DecodeString(kind)
	if err == nil && (name == codec.KindItem || name == codec.KindHeld) {
		d.Items++
	}
}

// copyRecord says how far a copy is. It takes the place of the usual record while the store is
// being filled.
type copyRecord struct {
	id, source  string // identities of the target and its source
	area        int64  // being copied, or restart
	next        []byte // where to continue in the area; nil at its beginning
	keys, bytes int64  // copied so far
}

// restart in copyRecord.area says that the copy must start over.
const restart = -1

// encode returns the record, which begins like the record of a store that is ready.
func (c *copyRecord) encode(k *codec.Space) []byte {
	return tuple.Tuple{
		int64(codec.UnfinishedVersion), c.id, k.Priority.Root, k.Fifo.Root, k.Format.String(),
		c.source, c.area, c.next, c.keys, c.bytes,
	}.Pack()
}

// parseCopyRecord reads what encode wrote.
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

// copyPage is how much to read at once, and to write in one transaction: about 1 MB, as
// FoundationDB advises, unless keys are long. They are shorter than 2 KB.
var copyPage = kv.RangeOptions{Limit: 2000, Bytes: 1_000_000}

// scan calls fn with all pairs of a range, in order. It reads each page in a transaction of its
// own.
func scan(ctx context.Context, db kv.Database, r kv.Range, fn func([]kv.KeyValue) error) error {
	for {
		pairs, err := kv.ReadTransact(ctx, db, func(reader kv.Reader) ([]kv.KeyValue, error) {
			return reader.GetRange(r, copyPage).Get()
		})
		if err == nil {
			err = fn(pairs)
		}

		if err != nil || !copyPage.Full(pairs) {
			return err
		}
		r.Begin = kv.SingleKey(pairs[len(pairs)-1].Key).End
	}
}
