package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// MaxQueueName is the longest queue name, in bytes.
const MaxQueueName = 128

// ValueFormat says how the bytes of a value are stored in an item's key.
type ValueFormat uint8

const (
	// RawValues stores the bytes as they are, as the recipes in Python do.
	RawValues ValueFormat = iota
	// TupleValues stores a tuple of one byte string, as the recipes in Java do.
	TupleValues
)

// Keyspace is a named set of queues that share a store. The zero value is not
// usable: see NewKeyspace. A Keyspace is safe for concurrent use.
type Keyspace struct {
	priority, fifo string
	format         ValueFormat
}

// NewKeyspace returns the queues below two root prefixes, the tuples
// (priority) and (fifo), usually "pq" and "q". The prefixes must differ.
func NewKeyspace(priority, fifo string, format ValueFormat) *Keyspace {
	return &Keyspace{priority: priority, fifo: fifo, format: format}
}

// PriorityQueue returns the priority queue of that name. It exists from the
// first push on; nothing is read or written here. Errors wrap ErrQueueName.
func (k *Keyspace) PriorityQueue(name string) (*PriorityQueue, error) {
	l, err := k.named(k.priority, name, false)
	if err != nil {
		return nil, err
	}
	return &PriorityQueue{l}, nil
}

// Queue returns the FIFO queue of that name, as PriorityQueue does.
func (k *Keyspace) Queue(name string) (*Queue, error) {
	l, err := k.named(k.fifo, name, true)
	if err != nil {
		return nil, err
	}
	return &Queue{l}, nil
}

func (k *Keyspace) named(root, name string, fifo bool) (*layout, error) {
	if len(name) == 0 || len(name) > MaxQueueName {
		return nil, fmt.Errorf("%w: it is %d bytes long: want 1 to %d", ErrQueueName, len(name), MaxQueueName)
	}
	l := newLayout(tuple.NewSubspace(tuple.Tuple{root, name}), k.format, fifo)
	l.registered = tuple.Tuple{root + "-queues", name}.Pack()
	return l, nil
}

// PriorityQueues returns the names of up to limit priority queues that were
// ever pushed to, in byte order, starting after the name given ("" for the
// first). Limit must be positive.
func (k *Keyspace) PriorityQueues(r kv.Reader, after string, limit int) ([]string, error) {
	return names(r, k.priority, after, limit)
}

// Queues is PriorityQueues for FIFO queues.
func (k *Keyspace) Queues(r kv.Reader, after string, limit int) ([]string, error) {
	return names(r, k.fifo, after, limit)
}

func names(r kv.Reader, root, after string, limit int) ([]string, error) {
	list := tuple.NewSubspace(tuple.Tuple{root + "-queues"})
	begin, end := list.Range()
	if after != "" {
		begin = kv.SingleKey(list.Pack(tuple.Tuple{after})).End
	}
	pairs, err := r.GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		name, _, err := tuple.DecodeString(pair.Key[len(list.Bytes()):])
		if err != nil {
			return nil, fmt.Errorf("%w: list of queues: %w", ErrCorrupt, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// receipts is where the receipts of batches are: see Batcher.
func (k *Keyspace) receipts() tuple.Subspace {
	return tuple.NewSubspace(tuple.Tuple{k.priority + "-x"})
}
