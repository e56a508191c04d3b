package fdbpq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A Keyspace has a record in the store, the same one below both of its roots:
//
//	("pq-store"), ("q-store") = (version, id, priority root, FIFO root, value format)
//	                          = (version, id, priority root, FIFO root, value format, origin)
//
// The second form is that of a store that Migrate filled; origin is the id of its source. Until Migrate
// has ended, a copyRecord is there instead.
//
// Both are written in one transaction. There are two so that OpenStore notices a root that
// is reused with another one, or for the other kind of queues.

// storeVersion is the version of the record and of the layout of all keys. It changes when
// older programs would misread what newer ones write.
const storeVersion = 1

// unfinishedVersion is the version of the record of a store that Migrate has begun to fill. Programs that do
// not know it refuse the store as one of a newer version.
const unfinishedVersion = 1 << 20

// Store describes a store that OpenStore opened.
type Store struct {
	// ID identifies this Keyspace of this store: random letters and digits, chosen when
	// it was first opened. A copy of the store has the same ID.
	ID string
	// New is whether this call wrote the record. Adopted is whether there were queues
	// before, from a version of this package that wrote no record.
	New, Adopted bool
}

// StoreOptions configure OpenStore.
type StoreOptions struct {
	// Exclusive refuses a store that has queues below other roots.
	Exclusive bool
}

// ErrUnfinished is returned for a store to which a migration has begun and not ended. Nothing may serve it.
var ErrUnfinished = errors.New("fdbpq: the store is the target of a migration that has not ended")

// ErrStoreVersion is returned by OpenStore for a store that a newer version of this package
// made.
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

// String returns "raw" or "tuple".
func (f ValueFormat) String() string {
	if f == TupleValues {
		return "tuple"
	}
	return "raw"
}

// OpenStore compares the Keyspace with its record in the store, and writes the record if
// there is none. Any number of programs may call it at the same time; all get the same ID.
// It retries errors that are [kv.Retryable], and commits of unknown outcome, until ctx ends.
//
// Errors: *MismatchError, ErrStoreVersion, ErrUnfinished, ErrCorrupt. After any other error, which is one
// of the store, it can be called again.
//
// Queues without a record, from an earlier version, are assumed to have the settings of
// the Keyspace. The exception is a Keyspace of TupleValues in a store where some value is
// certainly raw: that is a MismatchError.
func OpenStore(ctx context.Context, db kv.Database, k *Keyspace, o StoreOptions) (Store, error) {
	s, err := kv.ReadTransact(ctx, db, func(r kv.Reader) (Store, error) { return k.ReadStore(r, o) })
	if err != nil || s.ID != "" {
		return s, err
	}
	return kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) (Store, error) {
		s, err := k.ReadStore(tx, o)
		if err != nil || s.ID != "" {
			return s, err // another program was faster
		}
		return k.makeStore(tx)
	})
}

// storeRecord is the content of the record.
type storeRecord struct {
	id, priority, fifo, format string
	origin                     string // "" if Migrate did not fill it
}

func (k *space) record(id string) storeRecord {
	return storeRecord{id: id, priority: k.priority.root, fifo: k.fifo.root, format: k.format.String()}
}

func (k *space) storeKey(root string) []byte { return k.base.Pack(tuple.Tuple{root + storeSuffix}) }

func (s storeRecord) encode() []byte {
	t := tuple.Tuple{int64(storeVersion), s.id, s.priority, s.fifo, s.format}
	if s.origin != "" {
		t = append(t, s.origin)
	}
	return t.Pack()
}

func parseStoreRecord(value []byte) (s storeRecord, err error) {
	version, rest, err := tuple.DecodeInt(value)
	if err == nil && version == unfinishedVersion {
		return s, ErrUnfinished
	}
	if err == nil && version > storeVersion {
		return s, fmt.Errorf("%w: the store has version %d, this program knows %d", ErrStoreVersion, version, storeVersion)
	}
	for _, field := range []*string{&s.id, &s.priority, &s.fifo, &s.format} {
		if err == nil {
			*field, rest, err = tuple.DecodeString(rest)
		}
	}
	if err == nil && len(rest) > 0 {
		s.origin, _, err = tuple.DecodeString(rest)
	}
	if err == nil && s.id == "" {
		err = errors.New("no id")
	}
	if err != nil {
		return s, fmt.Errorf("%w: record of the store %x: %w", ErrCorrupt, value, err)
	}
	return s, nil
}

// ReadStore returns what OpenStore would, and writes nothing: without an ID if there is no record.
func (k *Keyspace) ReadStore(r kv.Reader, o StoreOptions) (Store, error) {
	reads := []kv.Future[[]byte]{r.Get(k.s.storeKey(k.s.priority.root)), r.Get(k.s.storeKey(k.s.fifo.root))}
	var store Store
	for _, read := range reads {
		value, err := read.Get()
		if err != nil {
			return Store{}, err
		}
		if value == nil {
			continue
		}
		record, err := parseStoreRecord(value)
		if err != nil {
			return Store{}, err
		}
		if err := k.s.compare(record); err != nil {
			return Store{}, err
		}
		store.ID = record.id
	}
	if store.ID == "" && o.Exclusive {
		return store, k.checkAlone(r)
	}
	return store, nil
}

// compare returns a MismatchError if the record is not that of the Keyspace.
func (k *space) compare(record storeRecord) error {
	asked := k.record(record.id)
	asked.origin = record.origin
	if record == asked {
		return nil
	}
	var mismatches []Mismatch
	if record.priority != asked.priority || record.fifo != asked.fifo {
		mismatches = append(mismatches, Mismatch{Setting: SettingRoots, Stored: roots(record.priority, record.fifo), Asked: roots(asked.priority, asked.fifo)})
	}
	if record.format != asked.format {
		mismatches = append(mismatches, Mismatch{Setting: SettingValueFormat, Stored: record.format, Asked: asked.format})
	}
	return &MismatchError{Mismatches: mismatches}
}

func roots(names ...string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, " and ")
}

// maxRoots is how many roots checkAlone reads at most. A Keyspace has seven.
const maxRoots = 64

// checkAlone returns an error if there are queues below other roots. It reads one key of
// each root.
func (k *Keyspace) checkAlone(r kv.Reader) error {
	prefix := len(k.s.base.Bytes())
	next := k.s.base.Pack(tuple.Tuple{""})[:prefix+1] // where tuples that begin with a string start
	end := slices.Clone(next)
	end[prefix]++
	var others []string
	for range maxRoots {
		pairs, err := r.GetRange(kv.Range{Begin: next, End: end}, kv.RangeOptions{Limit: 1}).Get()
		if err != nil {
			return err
		}
		if len(pairs) == 0 {
			break
		}
		first, _, err := tuple.DecodeString(pairs[0].Key[prefix:])
		if err != nil {
			next = kv.SingleKey(pairs[0].Key).End // not a key of ours
			continue
		}
		next = within(k.s.base.Pack(tuple.Tuple{first})).End
		root, registered := strings.CutSuffix(first, listSuffix)
		if registered && root != k.s.priority.root && root != k.s.fifo.root {
			others = append(others, root)
		}
		if root, recorded := strings.CutSuffix(first, storeSuffix); recorded {
			if record, err := parseStoreRecord(pairs[0].Value); err == nil {
				return k.s.compare(record)
			}
			others = append(others, root)
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return &MismatchError{Mismatches: []Mismatch{{
		Setting: SettingRoots, Stored: roots(slices.Compact(others)...), Asked: roots(k.s.priority.root, k.s.fifo.root),
	}}}
}

// makeStore writes the record.
func (k *Keyspace) makeStore(tx kv.Transaction) (Store, error) {
	layouts, err := k.firstQueues(tx.Snapshot())
	if err != nil {
		return Store{}, err
	}
	if err := k.checkValues(tx, layouts); err != nil {
		return Store{}, err
	}
	record := k.s.record(rand.Text())
	for _, root := range []string{k.s.priority.root, k.s.fifo.root} {
		tx.Set(k.s.storeKey(root), record.encode())
	}
	return Store{ID: record.id, New: true, Adopted: len(layouts) > 0}, nil
}

// Before queues are adopted, sampleItems of sampleQueues of each kind are checked.
const (
	sampleQueues = 16
	sampleItems  = 4
)

// firstQueues returns some of the queues.
func (k *Keyspace) firstQueues(r kv.Reader) (layouts []*layout, err error) {
	for _, of := range []*branch{&k.s.priority, &k.s.fifo} {
		queues, err := of.list.names(r, "", sampleQueues).Get()
		if err != nil {
			return nil, err
		}
		for _, name := range queues {
			l, err := k.s.layoutOf(of, name)
			if err != nil {
				return nil, err
			}
			layouts = append(layouts, l)
		}
	}
	return layouts, nil
}

// checkValues returns an error if values are to be tuples and this package has stored some
// that are not. The opposite cannot be detected: any bytes can be a raw value.
func (k *Keyspace) checkValues(tx kv.Transaction, layouts []*layout) error {
	if k.s.format != TupleValues {
		return nil
	}
	reads := make([]kv.Future[[]kv.KeyValue], len(layouts))
	for i, l := range layouts {
		reads[i] = tx.Snapshot().GetRange(l.itemRange(), kv.RangeOptions{Limit: sampleItems})
	}
	for i, read := range reads {
		pairs, err := read.Get()
		if err != nil {
			return err
		}
		for _, pair := range pairs {
			id, err := layouts[i].parseItem(pair.Key)
			if err != nil || !id.ours() {
				continue
			}
			if _, rest, err := tuple.DecodeBytes(pair.Value); err != nil || len(rest) > 0 {
				return &MismatchError{Mismatches: []Mismatch{{
					Setting: SettingValueFormat, Stored: RawValues.String(), Asked: TupleValues.String(),
				}}}
			}
		}
	}
	return nil
}
