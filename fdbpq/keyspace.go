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

// Keyspace is a set of named queues. Make one with NewKeyspace; the zero value is not
// usable. A Keyspace is safe for concurrent use.
type Keyspace struct{ s *space }

// space is where the keys of a Keyspace are.
type space struct {
	base           tuple.Subspace // holds all its keys
	priority, fifo branch
	receipts       tuple.Subspace // of batches: see Batcher
	format         ValueFormat
}

// branch holds the queues of one kind.
type branch struct {
	fifo bool
	root string
	list *list
}

// Records about the queues have roots of their own: a queue root with one of these
// appended.
const (
	listSuffix    = "-queues"
	receiptSuffix = "-x"
	storeSuffix   = "-store"
)

// area is the keys whose tuples begin with one root.
type area struct{ root, what string }

// areas is the table of all areas of a Keyspace.
func areas(priority, fifo string) []area {
	return []area{
		{priority, "the priority queues"},
		{fifo, "the FIFO queues"},
		{priority + listSuffix, "the list of priority queues"},
		{fifo + listSuffix, "the list of FIFO queues"},
		{priority + receiptSuffix, "the receipts of batches"},
		{priority + storeSuffix, "what the store says about its priority queues"},
		{fifo + storeSuffix, "what the store says about its FIFO queues"},
	}
}

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
	if err := checkAreas(priority, fifo); err != nil {
		return nil, err
	}
	base := tuple.FromBytes(s.Bytes())
	newKind := func(root string, fifo bool) branch {
		return branch{fifo: fifo, root: root, list: newList(base, root)}
	}
	return &Keyspace{&space{
		base:     base,
		priority: newKind(priority, false),
		fifo:     newKind(fifo, true),
		receipts: base.Sub(priority + receiptSuffix),
		format:   format,
	}}, nil
}

// Space is where its keys are, for other packages of this module.
func (k *Keyspace) Space() *space { return k.s }

// checkAreas returns an error if two areas overlap. No packed string is a prefix of
// another, so they overlap only if their roots are equal.
func checkAreas(priority, fifo string) error {
	if priority == "" || fifo == "" {
		return fmt.Errorf("%w: %q and %q: want two different roots that are not empty", ErrKeyspace, priority, fifo)
	}
	whats := make(map[string]string)
	for _, a := range areas(priority, fifo) {
		if other, taken := whats[a.root]; taken {
			return fmt.Errorf("%w: %q and %q: %s and %s would both be below %q: want two roots that still differ "+
				"when %s, %s or %s is appended to either", ErrKeyspace, priority, fifo, other, a.what, a.root,
				listSuffix, receiptSuffix, storeSuffix)
		}
		whats[a.root] = a.what
	}
	return nil
}

// PriorityQueue returns the priority queue with the given name. A queue exists from its
// first push on: PriorityQueue reads and writes nothing. Errors wrap ErrQueueName.
func (k *Keyspace) PriorityQueue(name string) (*PriorityQueue, error) {
	l, err := k.s.layoutOf(&k.s.priority, name)
	if err != nil {
		return nil, err
	}
	return &PriorityQueue{handle{l}}, nil
}

// Queue is PriorityQueue for FIFO queues.
func (k *Keyspace) Queue(name string) (*Queue, error) {
	l, err := k.s.layoutOf(&k.s.fifo, name)
	if err != nil {
		return nil, err
	}
	return &Queue{handle{l}}, nil
}

func (k *space) layoutOf(of *branch, name string) (*layout, error) {
	if len(name) == 0 || len(name) > MaxQueueName {
		return nil, fmt.Errorf("%w: %d bytes long: want 1 to %d", ErrQueueName, len(name), MaxQueueName)
	}
	l := newLayout(k.base.Sub(of.root, name), k.format, of.fifo)
	l.list = of.list
	return l, nil
}

// PriorityQueues starts to read the names of up to limit priority queues, in byte order,
// beginning after the given name ("" for the first). Limit must be positive. The names are
// those of all queues that were ever pushed to, except the ones that Retire took off the
// list.
func (k *Keyspace) PriorityQueues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return k.s.priority.list.names(r, after, limit)
}

// Queues is PriorityQueues for FIFO queues.
func (k *Keyspace) Queues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return k.s.fifo.list.names(r, after, limit)
}
