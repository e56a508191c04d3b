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

// A keyspace has a record of itself in the store, below both of its roots:
//
//	("pq-store"), ("q-store") = (version, id, priority root, FIFO root, value format)
//
// The two are equal and written in one transaction. There are two so that a
// root that is used again with another one, or for the other kind of queues, is
// noticed.

// storeVersion is that of the record and of the layout of the keys. It changes
// when older programs would misread what newer ones write.
const storeVersion = 1

// Store is what a keyspace's record in the store says.
type Store struct {
	// ID names this keyspace of this store among all others: letters and digits,
	// random, chosen by whoever opened it first. A copy of the store has the same.
	ID string
	// New is true if this call wrote the record, and Adopted if there were queues
	// already, which an earlier version made without one.
	New, Adopted bool
}

// StoreOptions say what OpenStore checks.
type StoreOptions struct {
	// Exclusive refuses a store with queues below other roots than the
	// keyspace's.
	Exclusive bool
}

// ErrStoreVersion: a newer version of this package made the store.
var ErrStoreVersion = errors.New("fdbpq: the store is of a newer version")

// Setting is something that a store keeps for good.
type Setting string

// Settings of a store, see NewKeyspace.
const (
	// SettingRoots are the two root prefixes.
	SettingRoots Setting = "root prefixes"
	// SettingValueFormat is the ValueFormat.
	SettingValueFormat Setting = "value format"
)

// Mismatch is a setting that is not the store's.
type Mismatch struct {
	Setting       Setting
	Stored, Asked string // for people
}

// MismatchError says that a store was made with other settings.
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

// OpenStore reads the keyspace's record in the store, or writes it if there is
// none, and compares it with the keyspace. Any number of programs may call it
// at the same time; all get the same ID. If the record is there nothing is
// written. It retries what is [kv.Retryable] or unknown until ctx ends.
//
// Errors: *MismatchError, ErrStoreVersion, ErrCorrupt; others are the store's
// and it can be called again.
//
// The settings of queues without a record, from an earlier version, are taken to be
// the keyspace's. It is only an error if values were certainly stored raw
// and the keyspace's are tuples.
func OpenStore(ctx context.Context, db kv.Database, k *Keyspace, o StoreOptions) (Store, error) {
	s, err := kv.ReadTransact(ctx, db, func(r kv.Reader) (Store, error) { return k.readStore(r, o) })
	if err != nil || s.ID != "" {
		return s, err
	}
	return kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) (Store, error) {
		s, err := k.readStore(tx, o)
		if err != nil || s.ID != "" {
			return s, err // somebody else was first
		}
		return k.makeStore(tx)
	})
}

// storeRecord is the value of the record.
type storeRecord struct {
	id, priority, fifo, format string
}

func (k *Keyspace) record(id string) storeRecord {
	return storeRecord{id: id, priority: k.priority.root, fifo: k.fifo.root, format: k.format.String()}
}

func (k *Keyspace) storeKey(root string) []byte { return k.base.Pack(tuple.Tuple{root + storeSuffix}) }

func (s storeRecord) encode() []byte {
	return tuple.Tuple{int64(storeVersion), s.id, s.priority, s.fifo, s.format}.Pack()
}

func parseStoreRecord(value []byte) (s storeRecord, err error) {
	version, rest, err := tuple.DecodeInt(value)
	if err == nil && version > storeVersion {
		return s, fmt.Errorf("%w: %d, this program knows %d: upgrade it", ErrStoreVersion, version, storeVersion)
	}
	for _, field := range []*string{&s.id, &s.priority, &s.fifo, &s.format} {
		if err == nil {
			*field, rest, err = tuple.DecodeString(rest)
		}
	}
	if err == nil && s.id == "" {
		err = errors.New("no id")
	}
	if err != nil {
		return s, fmt.Errorf("%w: record of the store %x: %w", ErrCorrupt, value, err)
	}
	return s, nil
}

// readStore returns the keyspace's record, without ID if there is none.
func (k *Keyspace) readStore(r kv.Reader, o StoreOptions) (Store, error) {
	reads := []kv.Future[[]byte]{r.Get(k.storeKey(k.priority.root)), r.Get(k.storeKey(k.fifo.root))}
	var found Store
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
		if err := k.compare(record); err != nil {
			return Store{}, err
		}
		found.ID = record.id
	}
	if found.ID == "" && o.Exclusive {
		return found, k.checkAlone(r)
	}
	return found, nil
}

func (k *Keyspace) compare(found storeRecord) error {
	var mismatches []Mismatch
	if asked := k.record(found.id); found != asked {
		if found.priority != asked.priority || found.fifo != asked.fifo {
			mismatches = append(mismatches, Mismatch{SettingRoots, roots(found.priority, found.fifo), roots(asked.priority, asked.fifo)})
		}
		if found.format != asked.format {
			mismatches = append(mismatches, Mismatch{SettingValueFormat, found.format, asked.format})
		}
		return &MismatchError{mismatches}
	}
	return nil
}

func roots(names ...string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, " and ")
}

// maxRoots is how many first elements of keys checkAlone looks at. A keyspace has
// seven.
const maxRoots = 64

// checkAlone returns an error if there are queues below other roots. It reads
// one key for each first element that keys have.
func (k *Keyspace) checkAlone(r kv.Reader) error {
	prefix := len(k.base.Bytes())
	next := k.base.Pack(tuple.Tuple{""})[:prefix+1] // of all tuples that begin with a string
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
		next = within(k.base.Pack(tuple.Tuple{first})).End
		root, registered := strings.CutSuffix(first, listSuffix)
		if registered && root != k.priority.root && root != k.fifo.root {
			others = append(others, root)
		}
		if root, recorded := strings.CutSuffix(first, storeSuffix); recorded {
			if record, err := parseStoreRecord(pairs[0].Value); err == nil {
				return k.compare(record)
			}
			others = append(others, root)
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return &MismatchError{[]Mismatch{{SettingRoots, roots(slices.Compact(others)...), roots(k.priority.root, k.fifo.root)}}}
}

// makeStore writes the record of a keyspace that has none.
func (k *Keyspace) makeStore(tx kv.Transaction) (Store, error) {
	layouts, err := k.firstQueues(tx.Snapshot())
	if err != nil {
		return Store{}, err
	}
	if err := k.checkValues(tx, layouts); err != nil {
		return Store{}, err
	}
	record := k.record(rand.Text())
	for _, root := range []string{k.priority.root, k.fifo.root} {
		tx.Set(k.storeKey(root), record.encode())
	}
	return Store{ID: record.id, New: true, Adopted: len(layouts) > 0}, nil
}

// sampleQueues of each kind, and sampleItems of each of them, are looked at
// before queues are adopted.
const (
	sampleQueues = 16
	sampleItems  = 4
)

// firstQueues returns some of the queues there are.
func (k *Keyspace) firstQueues(r kv.Reader) (layouts []*layout, err error) {
	for _, of := range []*branch{&k.priority, &k.fifo} {
		queues, err := of.list.names(r, "", sampleQueues).Get()
		if err != nil {
			return nil, err
		}
		for _, name := range queues {
			l, err := k.layoutOf(of, name)
			if err != nil {
				return nil, err
			}
			layouts = append(layouts, l)
		}
	}
	return layouts, nil
}

// checkValues returns an error if values of this package are there that are no
// tuples and should be. The opposite cannot be told: any bytes may be a raw value.
func (k *Keyspace) checkValues(tx kv.Transaction, layouts []*layout) error {
	if k.format != TupleValues {
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
				return &MismatchError{[]Mismatch{{SettingValueFormat, RawValues.String(), TupleValues.String()}}}
			}
		}
	}
	return nil
}
