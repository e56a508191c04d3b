package state

import (
	"bytes"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// BeginSettings starts to read the settings of the queue, unless that has begun.
func (g *Ledger) BeginSettings() {
	if !g.SettingsBegun() && g.cache != nil {
		g.settings = g.cache.settings
	}
	if !g.SettingsBegun() {
		g.settingsRead = g.Cached.begin(g.Tx, g.L)
	}
}

// ReadSettings is BeginSettings for readers without a transaction.
func (g *Ledger) ReadSettings(r kv.Reader, l *codec.Layout) {
	if !g.SettingsBegun() {
		g.settingsRead = r.Get(l.Key(codec.KindConfig, 0))
	}
}

// SettingsBegun reports whether the settings are being read, or are known.
func (g *Ledger) SettingsBegun() bool { return g.settingsRead != nil || g.settings != nil }

// LikelySettings returns the settings if they can be known without waiting for them, otherwise nil.
// They may be from before a change.
func (g *Ledger) LikelySettings() *codec.StoredSettings {
	r, cached := g.settingsRead.(*cachedRead)
	if g.settings != nil || !cached || r.stored != nil {
		return g.settings
	}
	s, err := codec.ParseSettings(r.value)
	if err != nil {
		return nil
	}
	return s
}

// Settings returns the settings of the queue. They must not be changed. The error is ErrCorrupt or
// one of the store.
func (g *Ledger) Settings() (*codec.Settings, error) {
	g.BeginSettings()
	if g.settings == nil {
		value, err := g.settingsRead.Get()
		if err == nil {
			g.settings, err = codec.ParseSettings(value)
		}

		if err != nil {
			return nil, err
		}
		g.cache.noteSettings(g.settings)
	}
	return &g.settings.Settings, nil
}

// ReadableSettings returns the settings of the queue, or empty ones if they are corrupt: then
// nothing limits the queue, because the items themselves may be fine. The error is one of the
// store.
func (g *Ledger) ReadableSettings() (*codec.Settings, error) {
	s, err := g.Settings()
	if errors.Is(err, codec.ErrCorrupt) {
		return &codec.Settings{}, nil
	}
	return s, err
}

// LimitsLeased reports whether the queue limits how many items, or items of a group, are leased.
// Then leases may wait for the end of another.
func (g *Ledger) LimitsLeased() (bool, error) {
	settings, err := g.ReadableSettings()
	return err == nil && (settings.MaxLeased > 0 || settings.MaxLeasedPerGroup > 0), err
}

// SetSettings replaces the settings that the ledger has read, and reports whether they differ. A
// queue with settings is in the list of queues, and Retire leaves it there.
func (g *Ledger) SetSettings(set *codec.Settings) (changed bool) {
	before := g.settings.Encode()
	s := &codec.StoredSettings{Settings: *set, Unknown: g.settings.Unknown}
	g.settings = s
	g.cache.noteSettings(s)
	g.wrote = true
	g.L.ChangeSettingsVersion(g.Tx)

	// A queue whose settings are all unset has no key.
	key, value := g.L.Key(codec.KindConfig, 0), s.Encode()
	if value == nil {
		g.Tx.Clear(key)
		return before != nil
	}

	g.Tx.Set(key, value)
	g.AddToList()
	return !bytes.Equal(value, before)
}

// SetRecord writes a record with its summary, or removes it if the value is empty, and moves its
// entry of the time index from one time to another; zero is no entry. A queue with a record is in
// the list of queues.
func (g *Ledger) SetRecord(k codec.RecordKind, name string, value []byte, before, next time.Time) {
	g.wrote = true
	key := g.L.RecordKey(k, name)
	if !before.IsZero() {
		g.Tx.Clear(g.L.DueKey(before, key))
	}

	if len(value) == 0 {
		g.Tx.Clear(key)
		g.Tx.Clear(g.L.SummaryKey(key))
		return
	}

	g.Tx.Set(key, value)
	summary := codec.Summary{Bytes: len(name) + len(value), Due: next}
	g.Tx.Set(g.L.SummaryKey(key), summary.Encode())
	if !next.IsZero() {
		g.Tx.Set(g.L.DueKey(next, key), []byte{})
		g.NoteDue(next)
	}
	g.AddToList()
}

// SetSource writes the state of the queue's source, or removes it if it is nil.
func (g *Ledger) SetSource(value []byte) {
	g.wrote = true
	if value == nil {
		g.Tx.Clear(g.L.SourceKey())
		return
	}
	g.Tx.Set(g.L.SourceKey(), value)
}

// AddToList puts the queue on the list of queues, without a mark, if it is in a Keyspace.
func (g *Ledger) AddToList() {
	if g.L.List != nil {
		g.Tx.Set(g.L.ListKey(), tuple.AppendInt(nil, g.Now.UnixMicro()))
		g.wrote = true
	}
}

// ListNames starts to read up to limit names of queues after the given one.
func ListNames(l *codec.List, r kv.Reader, after string, limit int) kv.Future[[]string] {
	span := codec.Within([]byte(l.Prefix))
	if after != "" {
		span.Begin = kv.SingleKey(tuple.AppendString([]byte(l.Prefix), after)).End
	}

	entries := r.GetRange(span, kv.RangeOptions{Limit: limit})

	return later[[]string](func() ([]string, error) {
		pairs, err := entries.Get()
		if err != nil {
			return nil, err
		}

		names := make([]string, len(pairs))
		for i, pair := range pairs {
			if names[i], err = l.Name(pair.Key); err != nil {
				return nil, err
			}
		}

		return names, nil
	})
}

// Bucket is how many deliveries a rate still allows a queue or a group, in one transaction: a
// bucket of Count tokens that gets one more in each Interval. So any time d sees at most Count +
// d/Interval deliveries. The store only has the time when the bucket will be full again. A nil
// Bucket does not limit.
//
// That time is at most Count intervals ahead. If it is further, by more than clocks differ, then
// the clock was set back, or another process has a wrong one: one delivery is allowed, and its
// transaction writes a time by the clock as it is now.
type Bucket struct {
	rate   settings.Rate
	hash   codec.GroupHash // codec.NotIndexed for that of the queue
	value  kv.Future[[]byte]
	stored int64 // when it is full, in nanoseconds; 0 if there is no row
	full   int64 // the same with the deliveries of the transaction
	loaded bool
	taken  bool
}

// maxSkew is how far the clocks of processes that use a queue may be apart.
const maxSkew = time.Second

// NewBucket returns the bucket of a group or, for codec.NotIndexed, of the queue. The caller reads
// its row without conflict; Write adds the conflict if something was taken.
func NewBucket(hash codec.GroupHash, rate settings.Rate, row kv.Future[[]byte]) *Bucket {
	return &Bucket{rate: rate, hash: hash, value: row}
}

// Next returns when the next delivery is allowed, to the microsecond; the zero time if it is now.
// The error is one of the store.
func (b *Bucket) Next(now time.Time) (time.Time, error) {
	if b == nil {
		return time.Time{}, nil
	}

	if !b.loaded {
		row, err := b.value.Get()
		if err != nil {
			return time.Time{}, err
		}

		b.stored, b.loaded = codec.ParseCount(row, 0), true
		b.full = b.stored
		most := now.UnixNano() + b.rate.Count*int64(b.rate.Interval())
		if b.full > most+int64(maxSkew) {
			b.full = most - int64(b.rate.Interval())
		}
	}

	// With Count tokens, a delivery is allowed from Count - 1 intervals before the bucket is full.
	interval := int64(b.rate.Interval())
	if at := b.full - (b.rate.Count-1)*interval; at > now.UnixNano() {
		return codec.BucketDue(at), nil
	}
	return time.Time{}, nil
}

// Take counts a delivery, after Next.
func (b *Bucket) Take(now time.Time) {
	if b != nil {
		b.full = max(b.full, now.UnixNano()) + int64(b.rate.Interval())
		b.taken = true
	}
}

// Write writes what Take has counted. The transaction conflicts with others that take.
func (b *Bucket) Write(g *Ledger) {
	if b == nil || !b.taken {
		return
	}

	key := g.L.BucketKey(b.hash)
	g.Tx.AddReadConflict(kv.SingleKey(key)) // before it is written: see kv.Transaction
	if b.stored > 0 {
		g.Tx.Clear(g.L.DueKey(codec.BucketDue(b.stored), key))
	}

	// The row falls due when it is full, and goes then: see package due.
	at := codec.BucketDue(b.full)
	SetUntil(g.L, g.Tx, at, key, codec.EncodeCount(b.full))
	g.NoteDue(at)
	b.stored, b.taken = b.full, false
}

// ResetBuckets removes the row of the queue, or the rows of all groups, because the rate has
// changed.
func (g *Ledger) ResetBuckets(ofGroups bool) {
	if ofGroups {
		g.Tx.ClearRange(g.L.GroupBuckets())
		return
	}
	g.Tx.Clear(g.L.BucketKey(codec.NotIndexed))
}
