package codec

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Space is where the keys of a Keyspace are.
type Space struct {
	Base           tuple.Subspace // holds all its keys
	Priority, Fifo Branch
	Receipts       tuple.Subspace // of batches: see fdbpq.Batcher
	Format         ValueFormat
}

// Branch holds the queues of one kind.
type Branch struct {
	Fifo bool
	Root string
	List *List
}

// Records about the queues have roots of their own: a queue root with one of these appended.
const (
	ListSuffix    = "-queues"
	ReceiptSuffix = "-x"
	StoreSuffix   = "-store"
)

// area is the keys whose tuples begin with one root.
type area struct{ root, what string }

// areas is the table of all areas of a Keyspace.
func areas(priority, fifo string) []area {
	return []area{
		{priority, "the priority queues"},
		{fifo, "the FIFO queues"},
		{priority + ListSuffix, "the list of priority queues"},
		{fifo + ListSuffix, "the list of FIFO queues"},
		{priority + ReceiptSuffix, "the receipts of batches"},
		{priority + StoreSuffix, "what the store says about its priority queues"},
		{fifo + StoreSuffix, "what the store says about its FIFO queues"},
	}
}

// CheckAreas returns an error if two areas overlap. No packed string is a prefix of
// another, so they overlap only if their roots are equal.
func CheckAreas(priority, fifo string) error {
	if priority == "" || fifo == "" {
		return fmt.Errorf("%w: %q and %q: want two different roots that are not empty", ErrKeyspace, priority, fifo)
	}

	whats := make(map[string]string)
	for _, a := range areas(priority, fifo) {
		if other, taken := whats[a.root]; taken {
			return fmt.Errorf("%w: %q and %q: %s and %s would both be below %q: want two roots that still differ "+
				"when %s, %s or %s is appended to either", ErrKeyspace, priority, fifo, other, a.what, a.root,
				ListSuffix, ReceiptSuffix, StoreSuffix)
		}
		whats[a.root] = a.what
	}
	return nil
}

func (k *Space) LayoutOf(of *Branch, name string) (*Layout, error) {
	if len(name) == 0 || len(name) > MaxQueueName {
		return nil, fmt.Errorf("%w: %d bytes long: want 1 to %d", ErrQueueName, len(name), MaxQueueName)
	}
	l := NewLayout(k.Base.Sub(of.Root, name), k.Format, of.Fifo)
	l.List = of.List
	return l, nil
}

// DataAreas returns the ranges of all keys but the records of the store. Every batch of a
// bridge writes a receipt. So receipts are copied first and compared last, and a batch that ran
// anywhere in between shows.
func (k *Space) DataAreas() []kv.Range {
	var ranges []kv.Range
	for _, root := range []string{
		k.Priority.Root + ReceiptSuffix,
		k.Priority.Root, k.Fifo.Root, k.Priority.Root + ListSuffix, k.Fifo.Root + ListSuffix,
	} {
		ranges = append(ranges, Within(k.Base.Pack(tuple.Tuple{root})))
	}
	return ranges
}

func NewList(base tuple.Subspace, root string) *List {
	return &List{
		Prefix: string(base.Pack(tuple.Tuple{root + ListSuffix})),
		root:   string(base.Pack(tuple.Tuple{root})),
	}
}
