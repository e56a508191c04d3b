package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// memo keeps answers for a while. Callers that want the same answer share one request.
type memo[K comparable, V any] struct {
	lasts time.Duration // how long an answer is kept
	most  int           // answers that are kept
	mu    sync.Mutex
	all   map[K]*kept[V]
}

// kept is the last answer that there was, and the error of the last question.
type kept[V any] struct {
	mu    sync.Mutex
	value V
	err   error
	until time.Time
}

// get returns the last answer for a key and the error of the last question, and calls ask if that
// is too long ago. A caller who is gone, or is told that NATS is away, has found out nothing.
func (m *memo[K, V]) get(ctx context.Context, key K, ask func() (V, error)) (V, error) {
	m.mu.Lock()
	k := m.all[key]
	if k == nil {
		if m.all == nil || len(m.all) >= m.most {
			m.all = map[K]*kept[V]{}
		}
		k = &kept[V]{}
		m.all[key] = k
	}

	m.mu.Unlock()

	k.mu.Lock()
	defer k.mu.Unlock()
	if !time.Now().Before(k.until) {
		value, err := ask()
		if k.err = err; err == nil {
			k.value = value
		}
		if ctx.Err() == nil && !errors.Is(err, errAway) {
			k.until = time.Now().Add(m.lasts)
		}
	}

	return k.value, k.err
}

// forget drops the answer for a key.
func (m *memo[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}
