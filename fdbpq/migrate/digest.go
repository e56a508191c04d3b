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
