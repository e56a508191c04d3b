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
	base           tuple.Subspace // all its keys are in here
	priority, fifo branch
	receipts       tuple.Subspace // of batches: see Batcher
	format         ValueFormat
}

// kind is where the queues of one kind are kept.
type branch struct {
	fifo bool
	root string
	list *list
}

// Records about the queues are below roots of their own: the prefix with one of
// these appended.
const (
	listSuffix    = "-queues"
	receiptSuffix = "-x"
	storeSuffix   = "-store" // reserved for what a store says about itself
)

// area is all keys whose tuple begins with one root.
type area struct{ root, what string }

// areas is the one table of the areas of a Keyspace.
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

// NewKeyspace returns the queues below two root prefixes, the tuples (priority)
// and (fifo), usually "pq" and "q". Records about the queues are below the same
// prefixes with "-queues", "-x" and "-store" appended. Two Keyspaces in one store
// must not share any of these roots.
//
// Errors wrap ErrKeyspace: a prefix is empty, or two of the roots are the same.
func NewKeyspace(priority, fifo string, format ValueFormat) (*Keyspace, error) {
	return NewKeyspaceIn(tuple.Subspace{}, priority, fifo, format)
}

// NewKeyspaceIn returns the Keyspace that has all its keys inside s, a directory of
// the program's own for example. A bridge serves a Keyspace of the whole store, as
// NewKeyspace returns it, and so does not see these queues.
//
// Errors: as NewKeyspace.
func NewKeyspaceIn(s Subspace, priority, fifo string, format ValueFormat) (*Keyspace, error) {
	if err := checkAreas(priority, fifo); err != nil {
		return nil, err
	}
	base := copied(s)
	newKind := func(root string, fifo bool) branch {
		return branch{fifo: fifo, root: root, list: newList(base, root)}
	}
	return &Keyspace{
		base:     base,
		priority: newKind(priority, false),
		fifo:     newKind(fifo, true),
		receipts: base.Sub(priority + receiptSuffix),
		format:   format,
	}, nil
}

// checkAreas returns an error if a key could be in two areas. A packed string ends
// in a byte that no longer string has there, so areas meet only if their roots are
// equal.
func checkAreas(priority, fifo string) error {
	if priority == "" || fifo == "" {
		return fmt.Errorf("%w: %q and %q: want two that differ and are not empty", ErrKeyspace, priority, fifo)
	}
	whats := make(map[string]string)
	for _, a := range areas(priority, fifo) {
		if other, taken := whats[a.root]; taken {
			return fmt.Errorf("%w: %q and %q: %s and %s would both be below %q: want two that stay different "+
				"if %s, %s or %s is appended to either", ErrKeyspace, priority, fifo, other, a.what, a.root,
				listSuffix, receiptSuffix, storeSuffix)
		}
		whats[a.root] = a.what
	}
	return nil
}

// PriorityQueue returns the priority queue of that name. It exists from the
// first push on; nothing is read or written here. Errors wrap ErrQueueName.
func (k *Keyspace) PriorityQueue(name string) (*PriorityQueue, error) {
	l, err := k.layoutOf(&k.priority, name)
	if err != nil {
		return nil, err
	}
	return &PriorityQueue{l}, nil
}

// Queue returns the FIFO queue of that name, as PriorityQueue does.
func (k *Keyspace) Queue(name string) (*Queue, error) {
	l, err := k.layoutOf(&k.fifo, name)
	if err != nil {
		return nil, err
	}
	return &Queue{l}, nil
}

func (k *Keyspace) layoutOf(of *branch, name string) (*layout, error) {
	if len(name) == 0 || len(name) > MaxQueueName {
		return nil, fmt.Errorf("%w: it is %d bytes long: want 1 to %d", ErrQueueName, len(name), MaxQueueName)
	}
	l := newLayout(k.base.Sub(of.root, name), k.format, of.fifo)
	l.list = of.list
	return l, nil
}

// PriorityQueues begins to read the names of up to limit priority queues, in byte
// order, starting after the name given ("" for the first). They are those that
// were pushed to, except those that Retire has taken off the list since. Limit
// must be positive.
func (k *Keyspace) PriorityQueues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return k.priority.list.names(r, after, limit)
}

// Queues is PriorityQueues for FIFO queues.
func (k *Keyspace) Queues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return k.fifo.list.names(r, after, limit)
}
