package proof

import "math"

// Pops and leases return fewer items than there are if the next one exceeds MaxBytes, or if it finds no room in
// their transaction beside what else that returns or moves. The latter depends on requests of others, so what is checked is
// only that there was a next item.

// headerBytes is more than the headers have that count towards MaxBytes besides the value.
const headerBytes = 1000

// isCut reports whether the answer said that the next item was too large.
func (o *Operation) isCut() bool { return o.Cut || o.Outcome == TooLarge }

// leftOfMaxBytes returns what the items have left of MaxBytes, at most.
func (o *Operation) leftOfMaxBytes() int64 {
	if o.MaxBytes == 0 {
		return math.MaxInt64
	}
	left := o.MaxBytes
	for _, item := range o.items() {
		left -= item.Size
	}
	return left
}

// wrongSize returns what is wrong with the sizes of the items, or with an answer that says they are too large.
func (o *Operation) wrongSize() string {
	switch {
	case o.leftOfMaxBytes() < 0:
		return "more bytes than asked for"
	case o.Outcome == TooLarge && o.MaxBytes == 0:
		return "too large, and not limited"
	}
	return ""
}

// isCut reports whether there can be a next item that is too large for what is left, or that found no room.
func (m *queueModel) isCut(s *state, p *step) bool {
	mayLackRoom := len(p.served) > 0
	for n := range m.ids {
		i := m.order(n, p.back)
		if !m.mayServe(s, p, i) {
			continue
		}
		if mayLackRoom || m.sizes[i]+headerBytes > p.left {
			return true
		}
		if m.mustServe(s, p, i, p.end) {
			return false
		}
	}
	return false
}
