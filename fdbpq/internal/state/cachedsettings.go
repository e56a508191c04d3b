package state

import (
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/recent"
)

// SettingsCache keeps the stored settings of a Keyspace's queues from one transaction to the next,
// in a store that others may change. Each change of settings gives List.SettingsVersion a new value
// that it never had before. So settings that a transaction has read together with one value are
// still in the store in every transaction that finds the same value. Instead of a key for each
// queue, a transaction reads that one.
//
// A SettingsCache is safe for concurrent use. A nil *SettingsCache caches nothing.
type SettingsCache struct {
	key string // List.SettingsVersion

	mu struct {
		sync.Mutex
		version string              // with which the values hold
		values  *recent.Map[[]byte] // as stored, by prefix of the queue
	}
}

// maxCachedSettings is about how many bytes a SettingsCache takes.
const maxCachedSettings = 4 << 20

// NewSettingsCache returns an empty cache for the queues of a list, and of others of its Keyspace.
func NewSettingsCache(l *codec.List) *SettingsCache {
	c := &SettingsCache{key: l.SettingsVersion}
	size := func(prefix string, value []byte) int { return 100 + len(prefix) + len(value) }
	c.mu.values = recent.NewMap(maxCachedSettings, size)
	return c
}

// Begin returns the cache for a transaction that changes no settings.
func (c *SettingsCache) Begin(tx kv.Transaction) *CachedSettings {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.values.Age()
	return &CachedSettings{cache: c, tx: tx}
}

// find returns the settings of a queue, and the version with which they hold.
func (c *SettingsCache) find(l *codec.Layout) (value []byte, version string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok = c.mu.values.Get([]byte(l.Prefix))
	return value, c.mu.version, ok
}

// learn keeps settings that hold with a version.
func (c *SettingsCache) learn(l *codec.Layout, value []byte, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != c.mu.version {
		c.mu.values.Clear()
		c.mu.version = version
	}
	c.mu.values.Set(l.Prefix, value)
}

// CachedSettings is a SettingsCache in one transaction. A nil *CachedSettings reads everything.
type CachedSettings struct {
	cache   *SettingsCache
	tx      kv.Transaction
	version kv.Future[[]byte] // nil before the first read
	reads   []*cachedRead
}

// cachedRead finds out the stored settings of a queue.
type cachedRead struct {
	*CachedSettings
	l      *codec.Layout
	value  []byte
	at     string            // the version with which value holds
	stored kv.Future[[]byte] // what the store has; nil as long as value may hold
}

// begin starts to find out the stored settings of a queue. The transaction conflicts with changes
// of these settings, and with no others.
func (c *CachedSettings) begin(tx kv.Transaction, l *codec.Layout) kv.Future[[]byte] {
	key := l.Key(codec.KindConfig, 0)
	if c == nil || l.List == nil || l.List.SettingsVersion != c.cache.key {
		return tx.Get(key)
	}
	if c.version == nil {
		c.version = tx.Snapshot().Get([]byte(c.cache.key))
	}

	r, known := &cachedRead{CachedSettings: c, l: l}, false
	if r.value, r.at, known = c.cache.find(l); known {
		tx.AddReadConflict(kv.SingleKey(key))
	} else {
		r.stored = tx.Get(key)
	}
	c.reads = append(c.reads, r)
	return r
}

// Get implements kv.Future.
func (r *cachedRead) Get() ([]byte, error) {
	version, err := r.version.Get()
	if err != nil || r.stored == nil && r.at == string(version) {
		return r.value, err
	}

	for _, other := range r.reads { // all in one round trip
		if other.stored == nil && other.at != string(version) {
			other.stored = r.tx.Get(other.l.Key(codec.KindConfig, 0))
		}
	}
	value, err := r.stored.Get()
	if err == nil {
		r.cache.learn(r.l, value, string(version))
	}
	return value, err
}
