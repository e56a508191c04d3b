package codec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Records about the queues have roots of their own: the root of the queues with one of these
// appended.
const (
	ListSuffix    = "-queues"
	ReceiptSuffix = "-x"
	StoreSuffix   = "-store"
)

// CheckAreas returns an error that wraps ErrKeyspace if two areas of a Keyspace overlap: an area is
// the keys whose tuples begin with one root. They overlap only if their roots are equal, because no
// packed string is a prefix of another.
func CheckAreas(priority, fifo string) error {
	if priority == "" || fifo == "" {
		return fmt.Errorf("%w: %q and %q: want two different roots that are not empty",
			ErrKeyspace, priority, fifo)
	}

	byRoot := make(map[string]string)
	for _, a := range []struct{ root, what string }{
		{priority, "the priority queues"},
		{fifo, "the FIFO queues"},
		{priority + ListSuffix, "the list of priority queues"},
		{fifo + ListSuffix, "the list of FIFO queues"},
		{priority + ReceiptSuffix, "the receipts of batches"},
		{priority + StoreSuffix, "what the store says about its priority queues"},
		{fifo + StoreSuffix, "what the store says about its FIFO queues"},
	} {
		if other, taken := byRoot[a.root]; taken {
			return fmt.Errorf("%w: %q and %q: %s and %s would both be below %q: want two roots "+
				"that still differ when %s, %s or %s is appended to either", ErrKeyspace,
				priority, fifo, other, a.what, a.root, ListSuffix, ReceiptSuffix, StoreSuffix)
		}

		byRoot[a.root] = a.what
	}

	return nil
}

// LayoutOf returns the layout of the queue with a name. The error wraps ErrQueueName.
func (k *Space) LayoutOf(of *Branch, name string) (*Layout, error) {
	if n := len(name); n == 0 || n > MaxQueueName {
		return nil, fmt.Errorf("%w: %d bytes long: want 1 to %d", ErrQueueName, n, MaxQueueName)
	}
	l := NewLayout(k.Base.Sub(of.Root, name), k.Format, of.Fifo)
	l.List = of.List
	return l, nil
}

// DataAreas returns the ranges of all keys except the two records of the store. Every batch of a
// bridge writes a receipt. So receipts are copied first and compared last, which shows any batch
// that ran in between.
func (k *Space) DataAreas() []kv.Range {
	var ranges []kv.Range
	for _, root := range []string{
		k.Priority.Root + ReceiptSuffix,
		k.Priority.Root, k.Fifo.Root, k.Priority.Root + ListSuffix, k.Fifo.Root + ListSuffix,
	} {
		ranges = append(ranges, Within(k.Base.Pack(tuple.Tuple{root})))
	}
	return append(ranges, Within(k.StoreKey(k.Priority.Root)))
}

// A Keyspace has a record in the store, the same one below both of its roots:
//
//	("pq-store"), ("q-store") = (version, id, priority root, FIFO root, value format)
//	                          = (version, id, priority root, FIFO root, value format, origin)
//
// A store that a migration has filled has the second form; origin is the id of its source. Until
// the migration ends, it has a record of its own there.
//
// Both are written in one transaction. There are two so that OpenStore notices a root that is
// reused with another one, or for the other kind of queues.
//
// The first transaction that stores an item with a group adds
//
//	("pq-store", "groups") = the secret of the hashes of groups, 32 random bytes
//
// It never changes. Each transaction that changes settings of a queue writes
//
//	("pq-store", "settings") = 12 random bytes
//
// so that what others have cached holds no longer. A migration copies both.

// storeVersion is the version of the record and of the layout of all keys. It changes when a
// program would misread what another version writes.
const storeVersion = 6

// lastReaders has, for each version before, the last commit of this project that reads its stores.
// Stores of version 0 have no record.
var lastReaders = [storeVersion]string{
	"aacf61a3", "22c882e7", "6ef4e724", "641b6a2c", "02f9e1d4", "94699689",
}

// OldStoreError returns the error for a store of an earlier version.
func OldStoreError(version int64) error {
	return fmt.Errorf("%w: the store has version %d, from before 0.1.0, this program knows %d: "+
		"serve it with commit %s, the last that reads it, or begin with an empty store",
		ErrStoreVersion, version, storeVersion, lastReaders[version])
}

// UnfinishedVersion is the version of the record while a migration fills the store. Programs that
// do not know it refuse the store as one of a newer version.
const UnfinishedVersion = 1 << 20

// ErrUnfinished is returned for a store to which a migration has begun and not ended. Nothing may
// serve it.
var ErrUnfinished = errors.New("fdbpq: the store is the target of a migration that has not ended")

// ErrStoreVersion is returned by OpenStore for a store whose layout this package does not know. The
// store stays as it is.
var ErrStoreVersion = errors.New("fdbpq: the store needs another version of this program")

// Setting is a setting that a store keeps for its whole life.
type Setting string

// Settings of a store: see NewKeyspace.
const (
	// SettingRoots is the two roots.
	SettingRoots Setting = "root prefixes"
	// SettingValueFormat is the ValueFormat.
	SettingValueFormat Setting = "value format"
)

// Mismatch is a setting that differs from the store's.
type Mismatch struct {
	Setting Setting
	Stored  string // for people to read
	Asked   string // as the Keyspace wants it
}

// MismatchError is returned by OpenStore for a store that was made with other settings. Error names
// them all.
type MismatchError struct {
	Mismatches []Mismatch // at least one
}

// Error implements error.
func (e *MismatchError) Error() string {
	var parts []string
	for _, m := range e.Mismatches {
		parts = append(parts, fmt.Sprintf("%s %s, not %s", m.Setting, m.Stored, m.Asked))
	}
	return "fdbpq: the store was made with " + strings.Join(parts, "; and with ")
}

// storeRecord is what the record says.
type storeRecord struct {
	ID, priority, fifo, format string
	Origin                     string // "" if Migrate did not fill it
}

// Record returns the record of the Keyspace in a store with the id.
func (k *Space) Record(id string) storeRecord {
	return storeRecord{id, k.Priority.Root, k.Fifo.Root, k.Format.String(), ""}
}

// StoreKey is the key of the record below a root.
func (k *Space) StoreKey(root string) []byte { return k.Base.Pack(tuple.Tuple{root + StoreSuffix}) }

// Encode returns the value of the record.
func (s storeRecord) Encode() []byte {
	t := tuple.Tuple{int64(storeVersion), s.ID, s.priority, s.fifo, s.format}
	if s.Origin != "" {
		t = append(t, s.Origin)
	}
	return t.Pack()
}

// ParseStoreRecord reads what Encode wrote. Errors wrap ErrUnfinished, ErrStoreVersion or
// ErrCorrupt.
func ParseStoreRecord(value []byte) (s storeRecord, err error) {
	d := decoder{rest: value}
	version := d.int()
	switch {
	case d.err == nil && version == UnfinishedVersion:
		return s, ErrUnfinished
	case d.err == nil && version > storeVersion:
		return s, fmt.Errorf("%w, a newer one: the store has version %d, this program knows %d",
			ErrStoreVersion, version, storeVersion)
	case d.err == nil && 0 < version && version < storeVersion:
		return s, OldStoreError(version)
	}

	s = storeRecord{ID: d.text(), priority: d.text(), fifo: d.text(), format: d.text()}
	if d.more() {
		s.Origin = d.text()
	}

	if d.err == nil && s.ID == "" {
		d.err = errors.New("no id")
	}

	if d.err != nil {
		return s, fmt.Errorf("%w: record of the store %x: %w", ErrCorrupt, value, d.err)
	}
	return s, nil
}

// Compare returns a MismatchError if the record does not fit the Keyspace.
func (k *Space) Compare(record storeRecord) error {
	asked := k.Record(record.ID)
	differ := slices.DeleteFunc([]Mismatch{
		{SettingRoots, record.roots(), asked.roots()},
		{SettingValueFormat, record.format, asked.format},
	}, func(m Mismatch) bool { return m.Stored == m.Asked })

	if len(differ) == 0 {
		return nil
	}
	return &MismatchError{Mismatches: differ}
}

// roots returns the roots as errors show them.
func (s *storeRecord) roots() string { return fmt.Sprintf("%q and %q", s.priority, s.fifo) }

// NewList returns the list of the queues below a root. priority is the root of the priority queues
// of the Keyspace.
func NewList(base tuple.Subspace, root, priority string) *List {
	return &List{
		Prefix:      string(base.Pack(tuple.Tuple{root + ListSuffix})),
		root:        string(base.Pack(tuple.Tuple{root})),
		GroupSecret: string(base.Pack(tuple.Tuple{priority + StoreSuffix, "groups"})),

		SettingsVersion: string(base.Pack(tuple.Tuple{priority + StoreSuffix, "settings"})),
	}
}
