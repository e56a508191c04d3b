// Package recent keeps what was used last, within a bound of memory.
package recent

// Map keeps the values of the keys that were used last, in two generations. Age makes the newer one
// the older once it takes half of the bound, and forgets those values of the older that were not
// used meanwhile. A Map is not safe for concurrent use.
type Map[V any] struct {
	newer, older map[string]V
	half         int // of the bound, in bytes
	size         int // of newer, in bytes
	sizeOf       func(key string, value V) int
}

// NewMap returns a map with a bound in bytes. sizeOf returns about how many a key takes with its
// value.
func NewMap[V any](bound int, sizeOf func(key string, value V) int) *Map[V] {
	m := &Map[V]{half: bound / 2, sizeOf: sizeOf}
	m.Clear()
	return m
}

// Get returns the value of a key, and the zero value if there is none.
func (m *Map[V]) Get(key []byte) (value V, ok bool) {
	if value, ok = m.newer[string(key)]; ok {
		return value, true
	}
	if value, ok = m.older[string(key)]; !ok {
		return value, false
	}

	delete(m.older, string(key))
	if m.sizeOf(string(key), value) > m.half { // alone it would always stay
		var none V
		return none, false
	}
	m.Set(string(key), value)
	return value, true
}

// Set replaces the value of a key.
func (m *Map[V]) Set(key string, value V) {
	if old, ok := m.newer[key]; ok {
		m.size -= m.sizeOf(key, old)
	} else if len(m.older) > 0 {
		delete(m.older, key)
	}
	m.newer[key] = value
	m.size += m.sizeOf(key, value)
}

// Delete forgets a key.
func (m *Map[V]) Delete(key []byte) {
	if old, ok := m.newer[string(key)]; ok {
		m.size -= m.sizeOf(string(key), old)
		delete(m.newer, string(key))
	}
	delete(m.older, string(key))
}

// Grow says that a value takes n bytes more than when Get or Set was called. No Age may have been
// called since.
func (m *Map[V]) Grow(n int) { m.size += n }

// Age forgets what was not used for long, if there is too much.
func (m *Map[V]) Age() {
	if m.size > m.half {
		m.newer, m.older, m.size = map[string]V{}, m.newer, 0
	}
}

// Clear forgets everything.
func (m *Map[V]) Clear() { m.newer, m.older, m.size = map[string]V{}, nil, 0 }

// Size is how many bytes were used since Age last forgot something.
func (m *Map[V]) Size() int { return m.size }
