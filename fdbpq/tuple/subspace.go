package tuple

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// ErrOutside says that a key is not in the subspace.
var ErrOutside = errors.New("tuple: key is outside of the subspace")

// Subspace is the keys that begin with one prefix. The zero value has an empty prefix:
// all keys. A Subspace is immutable, so it can be copied and used by many goroutines.
type Subspace struct {
	prefix []byte
}

// NewSubspace returns the subspace whose prefix is t packed. It panics as [Tuple.Pack] does.
func NewSubspace(t Tuple) Subspace {
	return Subspace{}.Sub(t...)
}

// FromBytes returns the subspace with a prefix, which it copies.
func FromBytes(prefix []byte) Subspace {
	return Subspace{prefix: slices.Clip(slices.Clone(prefix))}
}

// Sub returns the subspace of s for keys that continue with elements. It panics as
// [Tuple.Pack] does.
func (s Subspace) Sub(elements ...any) Subspace {
	return Subspace{prefix: slices.Clip(s.Pack(elements))}
}

// Bytes returns the prefix. It belongs to s and must not be changed; appending to it makes a copy.
func (s Subspace) Bytes() []byte { return s.prefix }

// Pack returns the key of t in s. It panics as [Tuple.Pack] does.
func (s Subspace) Pack(t Tuple) []byte {
	return t.appendTo(slices.Clone(s.prefix), 0)
}

// Unpack returns the tuple that Pack turns into key. Errors wrap [ErrOutside] or
// [ErrMalformed]; positions in their texts count from the end of the prefix.
func (s Subspace) Unpack(key []byte) (Tuple, error) {
	packed, found := bytes.CutPrefix(key, s.prefix)
	if !found {
		return nil, fmt.Errorf("%w: key begins %.40x, subspace %.40x", ErrOutside, key, s.prefix)
	}
	return Unpack(packed)
}

// Range returns the range begin <= key < end of all keys that Pack can return
// for a tuple with elements. Both belong to the caller.
func (s Subspace) Range() (begin, end []byte) {
	return append(slices.Clip(s.prefix), 0x00), append(slices.Clip(s.prefix), 0xff)
}
