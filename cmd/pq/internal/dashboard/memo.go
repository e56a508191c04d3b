package dashboard

import (
	"sync"
	"time"
)

// maxKept bounds what a memo keeps.
const maxKept = 10_000

// memo keeps answers for a while. Callers that want the same answer share one request.
type memo[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*kept[V]
}

// kept is an answer.
type kept[V any] struct {
	mu    sync.Mutex
	value V
	until time.Time
}

// get returns what is kept for a key. If there is nothing, or it is too old, get calls ask with
// that, which returns a value and how long to keep it.
func (m *memo[K, V]) get(key K, ask func(V) (V, time.Duration)) V {
	m.mu.Lock()
	if m.all == nil || len(m.all) >= maxKept {
		m.all = map[K]*kept[V]{}
	}

	k := m.all[key]
	if k == nil {
		k = &kept[V]{}
		m.all[key] = k
	}

	m.mu.Unlock()

	k.mu.Lock()
	defer k.mu.Unlock()
	if !time.Now().Before(k.until) {
		value, lasts := ask(k.value)
		k.value, k.until = value, time.Now().Add(lasts)
	}

	return k.value
}

// forget drops what is kept for a key.
func (m *memo[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}
