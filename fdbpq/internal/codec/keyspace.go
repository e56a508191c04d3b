package codec

import (
	"errors"
	"fmt"
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

// CheckAreas returns an error that wraps ErrKeyspace if two areas overlap. They overlap only if
// their roots are equal, because no packed string is a prefix of another.
func CheckAreas(priority, fifo string) error {
	if priority == "" || fifo == "" {
		return fmt.Errorf("%w: %q and %q: want two different roots that are not empty",
			ErrKeyspace, priority, fifo)
	}

	byRoot := make(map[string]string)
	for _, a := range areas(priority, fifo) {
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

// DataAreas returns the ranges of all keys except the records of the store. Every batch of a bridge
// writes a receipt. So receipts are copied first and compared last, which shows any batch that ran
// in between.
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

// storeVersion is the version of the record and of the layout of all keys. It changes when older
// programs would misread what newer ones write.
const storeVersion = 1

// UnfinishedVersion is the version of the record while a migration fills the store. Programs that
// do not know it refuse the store as one of a newer version.
const UnfinishedVersion = 1 << 20

// ErrUnfinished is returned for a store to which a migration has begun and not ended. Nothing may
// serve it.
var ErrUnfinished = errors.New("fdbpq: the store is the target of a migration that has not ended")

// ErrStoreVersion is returned by OpenStore for a store of a newer version of this package.
var ErrStoreVersion = errors.New("fdbpq: the store needs a newer version of this program")

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
	Setting       Setting
	Stored, Asked string // for people to read
}

// MismatchError is returned by OpenStore for a store that was made with other settings.
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
		return s, fmt.Errorf("%w: the store has version %d, this program knows %d",
			ErrStoreVersion, version, storeVersion)
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

// Compare returns a MismatchError if the record is not that of the Keyspace.
func (k *Space) Compare(record storeRecord) error {
	asked := k.Record(record.ID)
	asked.Origin = record.Origin
	if record == asked {
		return nil
	}

	var differ []Mismatch
	if record.priority != asked.priority || record.fifo != asked.fifo {
		differ = append(differ, Mismatch{SettingRoots, record.roots(), asked.roots()})
	}

	if record.format != asked.format {
		differ = append(differ, Mismatch{SettingValueFormat, record.format, asked.format})
	}
	return &MismatchError{Mismatches: differ}
}

// roots returns the roots as errors show them.
func (s *storeRecord) roots() string { return fmt.Sprintf("%q and %q", s.priority, s.fifo) }

// NewList returns the list of the queues below a root.
func NewList(base tuple.Subspace, root string) *List {
	return &List{
		Prefix: string(base.Pack(tuple.Tuple{root + ListSuffix})),
		root:   string(base.Pack(tuple.Tuple{root})),
	}
}
