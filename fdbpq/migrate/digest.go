package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
	return fmt.Sprintf("%d items in %d queues, %d keys, %d bytes, checksum %s", d.Items, d.Queues, d.Keys, d.Bytes, hex.EncodeToString(d.Sum[:8]))
}

// digest reads all areas, the last one first.
func digest(ctx context.Context, db kv.Database, k *codec.Space, areas []kv.Range, progress func(keys, bytes int64)) (Digest, error) {
	var d Digest
	sum := sha256.New()
	queues := []string{string(k.Base.Pack(tuple.Tuple{k.Priority.Root})), string(k.Base.Pack(tuple.Tuple{k.Fifo.Root}))}
	name := ""
	for _, area := range slices.Backward(areas) {
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
				for _, root := range queues {
					d.count(string(pair.Key), root, &name)
				}
			}
			progress(d.Keys, d.Bytes)
			return nil
		})
		if err != nil {
			return Digest{}, err
		}
	}

	sum.Sum(d.Sum[:0])
	return d, nil
}

// count counts the queue and the item of a key below root. prefix is that of the queue of the last
// key.
func (d *Digest) count(key, root string, prefix *string) {
	rest, inside := strings.CutPrefix(key, root)
	if !inside {
		return
	}
	_, kind, err := tuple.DecodeString([]byte(rest))
	if err != nil {
		return
	}

	if queue := key[:len(key)-len(kind)]; queue != *prefix {
		*prefix = queue
		d.Queues++
	}

	if name, _, err := tuple.DecodeString(kind); err == nil && (name == codec.KindItem || name == codec.KindHeld) {
		d.Items++
	}
}

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

// copyBytes is about how much is copied in one transaction. FoundationDB advises against more.
const copyBytes = 1_000_000

// copyPage is how much is read at once.
var copyPage = kv.RangeOptions{Limit: 2000, Bytes: copyBytes}

// scan calls fn with all pairs of a range, in order, and reads each page in a transaction.
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
