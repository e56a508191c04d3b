package fdbpq

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Keyspace is a set of named queues. Make one with NewKeyspace; the zero value is not usable. A
// Keyspace is safe for concurrent use.
type Keyspace struct{ s *codec.Space }

// NewKeyspace returns the Keyspace with priority queues below the tuple (priority) and FIFO queues
// below the tuple (fifo), usually "pq" and "q". Records about the queues are below the same roots
// with "-queues", "-x" and "-store" appended. Two Keyspaces in one store must not share any of
// these roots. NewKeyspace reads and writes nothing.
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
		return codec.Branch{Fifo: fifo, Root: root, List: codec.NewList(base, root, priority)}
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

// PriorityQueues starts to read the names of up to limit priority queues, in byte order, beginning
// after the given name ("" for the first). The limit must be positive. These are all queues that
// were ever pushed to, unless Retire took them off the list.
func (k *Keyspace) PriorityQueues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return state.ListNames(k.s.Priority.List, r, after, limit)
}

// Queues is PriorityQueues for FIFO queues.
func (k *Keyspace) Queues(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return state.ListNames(k.s.Fifo.List, r, after, limit)
}

// TrafficKey returns the key of these elements below ("pq-store", "traffic"). A service may keep
// there what it counts, in a form that it alone knows.
func (k *Keyspace) TrafficKey(elements ...any) []byte {
	return k.s.Base.Sub(k.s.Priority.Root+codec.StoreSuffix, "traffic").Pack(elements)
}

// Store describes a store that OpenStore opened.
type Store struct {
	// ID identifies this Keyspace of this store: random letters and digits, chosen when it was
	// first opened. A copy of the store has the same ID.
	ID string
	// New says that this call wrote the record.
	New bool
}

// StoreOptions configure OpenStore.
type StoreOptions struct {
	// Exclusive refuses a store that has queues below other roots.
	Exclusive bool
}

// OpenStore compares the Keyspace with its record in the store, and writes the record if there is
// none. Any number of programs may call it at the same time; all get the same ID. It retries errors
// that are [kv.Retryable], and commits of unknown outcome, until ctx ends.
//
// Without a record there must be no queues in the lists of the Keyspace: so a program that uses one
// calls OpenStore before it pushes. Items that others wrote with the bare recipes may be there.
//
// Errors: *MismatchError, ErrStoreVersion, ErrUnfinished, ErrCorrupt. After any other error, which
// is one of the store or the context's, it can be called again.
func OpenStore(ctx context.Context, db kv.Database, k *Keyspace, o StoreOptions) (Store, error) {
	read := func(r kv.Reader) (Store, error) { return k.ReadStore(r, o) }
	s, err := kv.ReadTransact(ctx, db, read)
	if err != nil || s.ID != "" {
		return s, err
	}
	return kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) (Store, error) {
		s, err := k.ReadStore(tx, o)
		if err != nil || s.ID != "" {
			return s, err // another program was faster
		}

		record := k.s.Record(rand.Text())
		for _, root := range []string{k.s.Priority.Root, k.s.Fifo.Root} {
			tx.Set(k.s.StoreKey(root), record.Encode())
		}
		return Store{ID: record.ID, New: true}, nil
	})
}

// ReadStore returns what OpenStore would, and writes nothing: if there is no record, the Store has
// no ID. Errors: as OpenStore.
func (k *Keyspace) ReadStore(r kv.Reader, o StoreOptions) (Store, error) {
	first, second := k.s.StoreKey(k.s.Priority.Root), k.s.StoreKey(k.s.Fifo.Root)
	var store Store
	for _, read := range []kv.Future[[]byte]{r.Get(first), r.Get(second)} {
		value, err := read.Get()
		if err != nil {
			return Store{}, err
		}
		if value == nil {
			continue
		}
		record, err := codec.ParseStoreRecord(value)
		if err != nil {
			return Store{}, err
		}
		if err := k.s.Compare(record); err != nil {
			return Store{}, err
		}
		store.ID = record.ID
	}

	if store.ID != "" {
		return store, nil
	}
	for _, listed := range []kv.Future[[]string]{k.PriorityQueues(r, "", 1), k.Queues(r, "", 1)} {
		if names, err := listed.Get(); err != nil || len(names) > 0 {
			return Store{}, cmp.Or(err, codec.OldStoreError(0))
		}
	}
	if o.Exclusive {
		return store, k.checkAlone(r)
	}
	return store, nil
}

// maxRoots is how many roots checkAlone reads at most. A Keyspace has seven.
const maxRoots = 64

// checkAlone returns an error if there is the record of a Keyspace with other roots. It reads one
// key of each root.
func (k *Keyspace) checkAlone(r kv.Reader) error {
	prefix := len(k.s.Base.Bytes())
	next := k.s.Base.Pack(tuple.Tuple{""})[:prefix+1] // where tuples that begin with a string start
	end := slices.Clone(next)
	end[prefix]++

	for range maxRoots {
		pairs, err := r.GetRange(kv.Range{Begin: next, End: end}, kv.RangeOptions{Limit: 1}).Get()
		if err != nil || len(pairs) == 0 {
			return err
		}

		first, rest, err := tuple.DecodeString(pairs[0].Key[prefix:])
		if err != nil {
			next = kv.SingleKey(pairs[0].Key).End // not a key of ours
			continue
		}
		if strings.HasSuffix(first, codec.StoreSuffix) && len(rest) == 0 {
			record, err := codec.ParseStoreRecord(pairs[0].Value)
			return cmp.Or(err, k.s.Compare(record))
		}
		next = codec.Within(k.s.Base.Pack(tuple.Tuple{first})).End
	}
	return nil
}
