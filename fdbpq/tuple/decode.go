package tuple

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrMalformed is wrapped by every decoding error. The bytes are truncated, are not in canonical
// form, or have an unsupported type, an integer that does not fit int64, or a type other than the
// requested one. The text says which, and at which byte.
var ErrMalformed = errors.New("tuple: malformed")

func malformed(at int, format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %s", ErrMalformed, at, fmt.Sprintf(format, args...))
}

// Unpack returns the tuple that b encodes, an empty one if b is empty. The result shares no memory
// with b. Errors wrap [ErrMalformed]; Unpack never panics.
func Unpack(b []byte) (Tuple, error) {
	t := Tuple{}
	for at := 0; at < len(b); {
		element, next, err := decodeElement(b, at, 0)
		if err != nil {
			return nil, err
		}
		t = append(t, element)
		at = next
	}
	return t, nil
}

// DecodeInt decodes the integer at the start of b; rest is what follows it.
// Errors wrap [ErrMalformed].
func DecodeInt(b []byte) (v int64, rest []byte, err error) {
	v, next, err := decodeInt(b, 0)
	return v, b[next:], err
}

// DecodeBytes decodes the bytes element at the start of b; rest is what follows it. v shares b's
// memory, or scratch's if the element contains a zero byte, so copy it if it outlives them. It is
// allocated if scratch, which may be nil, has too little capacity. Errors wrap [ErrMalformed].
func DecodeBytes(b, scratch []byte) (v, rest []byte, err error) {
	v, next, err := decodeEscaped(b, 0, codeBytes, scratch)
	return v, b[next:], err
}

// DecodeString decodes the string at the start of b; rest is what follows it.
// Errors wrap [ErrMalformed].
func DecodeString(b []byte) (v string, rest []byte, err error) {
	raw, next, err := decodeEscaped(b, 0, codeString, nil)
	return string(raw), b[next:], err
}

// DecodeStart decodes the start of the nested tuple at the start of b; rest begins with its first
// element, or with its end: see [DecodeEnd]. Errors wrap [ErrMalformed].
func DecodeStart(b []byte) (rest []byte, err error) {
	if len(b) == 0 || b[0] != codeNested {
		return b, unexpected(b, 0, describe(codeNested))
	}
	return b[1:], nil
}

// DecodeEnd reports whether a nested tuple ends at the start of b; rest is what follows its end. If
// it goes on, rest is b.
func DecodeEnd(b []byte) (rest []byte, ended bool) {
	if len(b) == 0 || b[0] != terminator || len(b) > 1 && b[1] == escape {
		return b, false
	}
	return b[1:], true
}

// Decode decodes the element at the start of b, which shares no memory with b; rest is what follows
// it. Errors wrap [ErrMalformed].
func Decode(b []byte) (element any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, b, unexpected(b, 0, "an element")
	}
	element, next, err := decodeElement(b, 0, 0)
	return element, b[next:], err
}

// decodeElement decodes the element at b[at], which must exist. next is where the one
// after it begins; depth is how deeply this one is nested.
func decodeElement(b []byte, at, depth int) (element any, next int, err error) {
	switch code := b[at]; {
	case code == codeNil:
		return nil, at + 1, nil
	case code == codeBytes:
		v, next, err := decodeEscaped(b, at, codeBytes, nil)
		return bytes.Clone(v), next, err
	case code == codeString:
		v, next, err := decodeEscaped(b, at, codeString, nil)
		return string(v), next, err
	case code == codeNested:
		return decodeNested(b, at, depth+1)
	case isInt(code):
		v, next, err := decodeInt(b, at)
		return v, next, err
	case code == codeFalse || code == codeTrue:
		return code == codeTrue, at + 1, nil
	default:
		return nil, 0, malformed(at, "%s is not supported", describe(code))
	}
}

// decodeNested decodes the tuple whose code is at b[at].
func decodeNested(b []byte, at, depth int) (Tuple, int, error) {
	if depth > MaxDepth {
		return nil, 0, malformed(at, "nested deeper than %d", MaxDepth)
	}

	t := Tuple{}
	for next := at + 1; next < len(b); {
		if b[next] != terminator {
			element, after, err := decodeElement(b, next, depth)
			if err != nil {
				return nil, 0, err
			}
			t = append(t, element)
			next = after
			continue
		}

		if next+1 == len(b) || b[next+1] != escape {
			return t, next + 1, nil
		}

		t = append(t, nil)
		next += 2
	}

	return nil, 0, malformed(at, "the nested tuple has no end")
}

// decodeEscaped decodes bytes or a string, as code says. The result is never nil, and
// shares b's memory, or scratch's if something in it was escaped.
func decodeEscaped(b []byte, at int, code byte, scratch []byte) (v []byte, next int, err error) {
	if at == len(b) || b[at] != code {
		return nil, 0, unexpected(b, at, describe(code))
	}

	// Look for a zero byte that is not escaped.
	start, escapes := at+1, 0
	for end := start; ; end += 2 {
		zero := bytes.IndexByte(b[end:], terminator)
		if zero < 0 {
			return nil, 0, malformed(at, "%s has no end", describe(code))
		}

		end += zero
		if end+1 == len(b) || b[end+1] != escape {
			return unescape(b[start:end:end], escapes, scratch), end + 1, nil
		}
		escapes++
	}
}

// unescape removes the byte after each zero byte, into scratch. There are n of them.
func unescape(b []byte, n int, scratch []byte) []byte {
	if n == 0 {
		return b
	}
	v := slices.Grow(scratch[:0], len(b)-n)
	for range n {
		zero := bytes.IndexByte(b, 0)
		v = append(v, b[:zero+1]...)
		b = b[zero+2:]
	}
	return append(v, b...)
}

func decodeInt(b []byte, at int) (v int64, next int, err error) {
	if at == len(b) || !isInt(b[at]) {
		return 0, 0, unexpected(b, at, "an integer")
	}

	code := int(b[at])
	if code == codeBigMinus || code == codeBigPlus {
		return 0, 0, malformed(at, "the integer does not fit int64")
	}

	// The code says the sign and the number of bytes. Negative numbers are stored as complements.
	size, flip := code-codeZero, byte(0x00)
	if size < 0 {
		size, flip = -size, 0xff
	}

	next = at + 1 + size
	if next > len(b) {
		return 0, 0, malformed(at, "the integer is cut off after %d of %d bytes", len(b)-at-1, size)
	}

	var magnitude uint64
	for _, c := range b[at+1 : next] {
		magnitude = magnitude<<8 | uint64(c^flip)
	}

	limit := uint64(math.MaxInt64)
	if flip != 0 {
		limit++
	}

	switch {
	case size > 0 && magnitude>>(8*(size-1)) == 0:
		return 0, 0, malformed(at, "the integer is not in its shortest form")
	case magnitude > limit:
		return 0, 0, malformed(at, "the integer does not fit int64")
	case flip != 0:
		return int64(-magnitude), next, nil
	default:
		return int64(magnitude), next, nil
	}
}

func isInt(code byte) bool { return codeBigMinus <= code && code <= codeBigPlus }

func unexpected(b []byte, at int, want string) error {
	if at == len(b) {
		return malformed(at, "want %s, found the end", want)
	}
	return malformed(at, "want %s, found %s", want, describe(b[at]))
}

// describe names the type of a code, for error texts.
func describe(code byte) string {
	switch {
	case code == codeNil:
		return "nil"
	case code == codeBytes:
		return "a bytes element"
	case code == codeString:
		return "a string"
	case code == codeNested:
		return "a nested tuple"
	case isInt(code):
		return "an integer"
	case code == codeFalse || code == codeTrue:
		return "a bool"
	default:
		return fmt.Sprintf("type code 0x%02x", code)
	}
}
