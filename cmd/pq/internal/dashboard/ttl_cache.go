package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ttlCache keeps answers for a while. Callers that want the same answer share one request.
type ttlCache[K comparable, V any] struct {
	lasts time.Duration // how long an answer is kept
	most  int           // answers that are kept
	mu    sync.Mutex
	all   map[K]*cacheEntry[V]
}

// cacheEntry is the last answer that there was, and the error of the last question.
type cacheEntry[V any] struct {
	mu    sync.Mutex
	value V
	err   error
	until time.Time
}

// get returns the last answer for a key and the error of the last question, and calls ask if that
// is too long ago. A caller who is gone, or is told that NATS is away, has found out nothing.
func (c *ttlCache[K, V]) get(ctx context.Context, key K, ask func() (V, error)) (V, error) {
	c.mu.Lock()
	e := c.all[key]
	if e == nil {
		if c.all == nil || len(c.all) >= c.most {
			c.all = map[K]*cacheEntry[V]{}
		}
		e = &cacheEntry[V]{}
		c.all[key] = e
	}

	c.mu.Unlock()

	e.mu.Lock()
	defer e.mu.Unlock()
	if !time.Now().Before(e.until) {
		value, err := ask()
		if e.err = err; err == nil {
			e.value = value
		}
		if ctx.Err() == nil && !errors.Is(err, errAway) {
			e.until = time.Now().Add(c.lasts)
		}
	}

	return e.value, e.err
}

// forget drops the answer for a key.
func (c *ttlCache[K, V]) forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, key)
}
