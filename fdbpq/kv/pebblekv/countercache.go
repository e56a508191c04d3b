package pebblekv

// sum is what is known of a key that was added to.
type sum struct {
	value  uint64 // little-endian when stored, in 8 bytes
	exists bool
}

// maxSums bounds how many keys are known, and maxSumKey how long they are, in
// bytes.
const (
	maxSums   = 1 << 15
	maxSumKey = 256
)

// sums is the newest values of keys that were added to, so that to add to them
// again needs no read: the numbers of items of a queue change with each push
// and pop. It belongs to whoever holds DB.writer.
type sums map[string]sum

// change is what a transaction made of a key.
type change struct {
	sum
	known bool // false: it was written in another way
}

// commit takes over what a transaction that was applied knows. Unless it
// cleared a range the rest stays known.
func (s sums) commit(t *summing) {
	if t.cleared || len(s)+len(t.changed) > maxSums {
		clear(s)
	}
	for key, c := range t.changed {
		if c.known && len(key) <= maxSumKey {
			s[key] = c.sum
		} else {
			delete(s, key)
		}
	}
}

// summing is what one transaction does to sums. Its zero value is ready to use.
type summing struct {
	changed map[string]change
	cleared bool // a range was cleared: only what changed since is known
}

// known returns what is known of a key.
func (t *summing) known(s sums, key []byte) (value sum, ok bool) {
	if c, changed := t.changed[string(key)]; changed {
		return c.sum, c.known
	}
	if t.cleared {
		return sum{}, false
	}
	value, ok = s[string(key)]
	return value, ok
}

func (t *summing) set(key []byte, c change) {
	if t.changed == nil {
		t.changed = make(map[string]change)
	}
	t.changed[string(key)] = c
}

// wrote takes note of a write that is no addition.
func (t *summing) wrote(s sums, key []byte) {
	if _, known := t.known(s, key); known {
		t.set(key, change{})
	}
}

// clearedRange takes note that a range was cleared.
func (t *summing) clearedRange() { *t = summing{cleared: true} }
