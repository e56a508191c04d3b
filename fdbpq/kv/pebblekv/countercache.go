package pebblekv

import "github.com/pqbridge/pqbridge/fdbpq/internal/recent"

// counter is the value of a key that Add changes.
type counter struct {
	value  uint64 // stored as 8 bytes, little-endian
	exists bool
	known  bool // false if something other than Add wrote the key
}

// counterCache has the newest values of recently incremented keys, so that the next Add needs no
// read: every push and pop changes the item counts of its queue. It takes 11 % off the processor
// time of a transaction of a lane's usual pushes and pops. Only the holder of the writer slot uses
// it.
type counterCache struct{ *recent.Map[counter] }

// counterCacheSize is about how many bytes the cache takes.
const counterCacheSize = 16 << 20

func newCounterCache() counterCache {
	size := func(key string, _ counter) int { return len(key) + 100 }
	return counterCache{recent.NewMap(counterCacheSize, size)}
}

// apply enters what a committed transaction did to counters.
func (c counterCache) apply(t *counterChanges) {
	if t.cleared {
		c.Clear()
	}

	for key, change := range t.changed {
		if change.known {
			c.Set(key, change)
		} else {
			c.Delete(key)
		}
	}
	c.Age()
}

// counterChanges is what one transaction did to counters. Its zero value is ready to use.
type counterChanges struct {
	changed map[string]counter
	cleared bool // a range was cleared, so the cache does not apply any more
}

// get returns the value that the transaction sees under key, if it is cached.
func (t *counterChanges) get(cache counterCache, key []byte) (value counter, ok bool) {
	if change, changed := t.changed[string(key)]; changed {
		return change, change.known
	}
	if t.cleared {
		return counter{}, false
	}
	return cache.Get(key)
}

func (t *counterChanges) set(key []byte, value counter) {
	if t.changed == nil {
		t.changed = make(map[string]counter)
	}
	t.changed[string(key)] = value
}

// noteWrite notes that something other than Add wrote key.
func (t *counterChanges) noteWrite(cache counterCache, key []byte) {
	if _, cached := t.get(cache, key); cached {
		t.set(key, counter{})
	}
}
