package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Keyspace is a set of named queues. Make one with NewKeyspace; the zero value is not
// usable. A Keyspace is safe for concurrent use.
type Keyspace struct{ s *codec.Space }

// NewKeyspace returns the Keyspace with priority queues below the tuple (priority) and FIFO
// queues below the tuple (fifo), usually "pq" and "q". Records about the queues are below
// the same roots with "-queues", "-x" and "-store" appended. Two Keyspaces in one store must
// not share any of these roots.
//
// Errors wrap ErrKeyspace: a root is empty, or two of them are the same.
func NewKeyspace(priority, fifo string, format ValueFormat) (*Keyspace, error) {
	return NewKeyspaceIn(tuple.Subspace{}, priority, fifo, format)
}

// NewKeyspaceIn returns a Keyspace with all its keys inside s, for example a directory of
// your program. A bridge does not see its queues: it serves a Keyspace that NewKeyspace
// returned.
//
// Errors: as NewKeyspace.
func NewKeyspaceIn(s Subspace, priority, fifo string, format ValueFormat) (*Keyspace, error) {
	if err := codec.CheckAreas(priority, fifo); err != nil {
		return nil, err
	}

	base := tuple.FromBytes(s.Bytes())
	newKind := func(root string, fifo bool) codec.Branch {
		return codec.Branch{Fifo: fifo, Root: root, List: codec.NewList(base, root)}
	}
	return &Keyspace{&codec.Space{
		Base:     base,
		Priority: newKind(priority, false),
		Fifo:     newKind(fifo, true),
		Receipts: base.Sub(priority + codec.ReceiptSuffix),
		Format:   format,
	}}, nil
}

// Space is where its keys are, for other packages of this module.
func (k *Keyspace) Space() *codec.Space { return k.s }

// PriorityQueue returns the priority queue with the given name. A queue exists from its
// first push on: PriorityQueue reads and writes nothing. Errors wrap ErrQueueName.
func (k *Keyspace) PriorityQueue(name string) (*PriorityQueue, error) {
	l, err := k.s.LayoutOf(&k.s.Priority, name)
	if err != nil {
		return nil, err
	}
	return &PriorityQueue{handle{l}}, nil
}

// Queue is PriorityQueue for FIFO queues.
func (k *Keyspace) Queue(name string) (*Queue, error) {
	l, err := k.s.LayoutOf(&k.s.Fifo, name)
	if err != nil {
		return nil, err
	}
	return &Queue{handle{l}}, nil
}

// PriorityQueues starts to read the names of up to limit priority queues, in byte order,
// beginning after the given name ("" for the first). Limit must be positive. The names are
// those of all queues that were ever pushed to, except the ones that Retire took off the
// list.
func (k *Keyspace) PriorityQueues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return state.ListNames(k.s.Priority.List, r, after, limit)
}

// Queues is PriorityQueues for FIFO queues.
func (k *Keyspace) Queues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return state.ListNames(k.s.Fifo.List, r, after, limit)
}
