// Package tuple is FoundationDB's tuple encoding in pure Go: it turns lists of values into byte
// strings that sort like the lists. It reads and writes the same bytes as FoundationDB's own
// bindings, for the types that the queues need: nil, bytes, strings, int64, bool and nested tuples.
//
// [Tuple.Pack] and [Unpack] take any mix of them. The Append and Decode functions handle single
// elements without boxing, for code that runs for every item of a queue. [Subspace] adds a common
// prefix to tuples.
//
// # Order
//
// bytes.Compare of two packed tuples orders them element by element: by type, in the order of the
// type codes below, then by value. A tuple sorts before every longer one that begins with it.
// Integers sort by value whatever their size, false before true, strings by their bytes.
//
// # Canonical form
//
// Every tuple has exactly one encoding, and decoding refuses all others: an integer with leading
// zero bytes, which other bindings accept but never write, is malformed here. So packing a decoded
// key gives the same key again, and a decoded tuple can be used to find the key or to clear it.
//
// As in the official Go binding, strings need not be valid UTF-8.
//
// Everything here is safe for concurrent use.
package tuple

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Type codes: the first byte of each element.
//
//	code   element       what follows
//	0x00   nil           at the top level nothing, in a nested tuple 0xff
//	0x01   bytes         the bytes, each 0x00 followed by 0xff, then 0x00
//	0x02   string        as for bytes
//	0x05   nested tuple  its elements, then 0x00
//	0x0b   integer       negative, over 8 bytes long: refused
//	0x0c   integer       negative, 8 bytes: the complement of its magnitude, big-endian
//	...
//	0x13   integer       negative, 1 byte
//	0x14   integer       zero, nothing follows
//	0x15   integer       positive, 1 byte
//	...
//	0x1c   integer       positive, 8 bytes: its magnitude, big-endian
//	0x1d   integer       positive, over 8 bytes long: refused
//	0x26   bool          false, nothing follows
//	0x27   bool          true, nothing follows
//
// No element begins with 0xff, so a terminating 0x00 cannot be mistaken for an escaped one. The
// other codes of the format (floating point numbers, UUIDs, versionstamps) are refused.
const (
	codeNil      = 0x00
	codeBytes    = 0x01
	codeString   = 0x02
	codeNested   = 0x05
	codeBigMinus = 0x0b
	codeZero     = 0x14
	codeBigPlus  = 0x1d
	codeFalse    = 0x26
	codeTrue     = 0x27

	terminator = 0x00
	escape     = 0xff
)

// MaxDepth is the maximum depth of nested tuples. It keeps hostile bytes from
// exhausting the stack; keys of queues need one at most.
const MaxDepth = 100

// Tuple is a list of elements, each nil, []byte, string, int64, bool or Tuple.
// An int is packed as the int64 of the same value; decoding gives int64.
// A nil []byte is packed as empty bytes, a nil Tuple as an empty one.
type Tuple []any

// Pack returns the encoding of t. It panics if an element, at any depth, has a type that [Tuple]
// does not list, or is nested deeper than [MaxDepth]: both are bugs in the program, not bad data.
func (t Tuple) Pack() []byte { return t.appendTo(nil, 0) }

func (t Tuple) appendTo(dst []byte, depth int) []byte {
	for i, element := range t {
		switch v := element.(type) {
		case nil:
			dst = append(dst, codeNil)
			if depth > 0 {
				dst = append(dst, escape)
			}
		case []byte:
			dst = AppendBytes(dst, v)
		case string:
			dst = AppendString(dst, v)
		case int64:
			dst = AppendInt(dst, v)
		case int:
			dst = AppendInt(dst, int64(v))
		case bool:
			code := byte(codeFalse)
			if v {
				code = codeTrue
			}
			dst = append(dst, code)
		case Tuple:
			if depth == MaxDepth {
				panic(fmt.Sprintf("tuple: nested deeper than %d", MaxDepth))
			}
			dst = v.appendTo(append(dst, codeNested), depth+1)
			dst = append(dst, terminator)
		default:
			panic(fmt.Sprintf("tuple: element %d is of type %T: "+
				"want nil, []byte, string, int64, int, bool or Tuple", i, v))
		}
	}

	return dst
}

// AppendBytes appends b as one element to dst.
func AppendBytes(dst, b []byte) []byte {
	return appendEscaped(append(dst, codeBytes), b)
}

// AppendString appends s as one element to dst.
func AppendString(dst []byte, s string) []byte {
	return appendEscaped(append(dst, codeString), s)
}

func appendEscaped[T []byte | string](dst []byte, v T) []byte {
	copied := 0
	for i := range len(v) {
		if v[i] == 0 {
			dst = append(dst, v[copied:i+1]...)
			dst = append(dst, escape)
			copied = i + 1
		}
	}
	dst = append(dst, v[copied:]...)
	return append(dst, terminator)
}

// AppendInt appends v as one element to dst; at most nine bytes.
func AppendInt(dst []byte, v int64) []byte {
	code, magnitude := codeZero, uint64(v)
	if v < 0 {
		magnitude = -magnitude
	}

	size := (bits.Len64(magnitude) + 7) / 8
	if v < 0 {
		code -= size
		magnitude = ^magnitude
	} else {
		code += size
	}

	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], magnitude)
	dst = append(dst, byte(code))
	return append(dst, raw[8-size:]...)
}

// AppendStart appends the start of a nested tuple. Append its elements next, and then AppendEnd.
func AppendStart(dst []byte) []byte { return append(dst, codeNested) }

// AppendEnd ends the nested tuple that AppendStart began.
func AppendEnd(dst []byte) []byte { return append(dst, terminator) }

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

// Unpack returns the tuple that Pack turns into key. Errors wrap [ErrOutside] or [ErrMalformed].
// Positions in their texts count from the end of the prefix.
func (s Subspace) Unpack(key []byte) (Tuple, error) {
	packed, found := bytes.CutPrefix(key, s.prefix)
	if !found {
		return nil, fmt.Errorf("%w: key begins %.40x, subspace %.40x", ErrOutside, key, s.prefix)
	}
	return Unpack(packed)
}

// Range returns the range begin <= key < end of all keys that Pack can return for a tuple that is
// not empty. Both belong to the caller.
func (s Subspace) Range() (begin, end []byte) {
	return append(slices.Clip(s.prefix), 0x00), append(slices.Clip(s.prefix), 0xff)
}
