package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
)

// What can be wrong with an object.
var (
	errNotObject = errors.New("not an object")
	errNotJSON   = errors.New("not JSON")
	errTrailing  = errors.New("something after the object")
)

// objectReader reads the members of a JSON object one by one. Requests with options are
// frequent, and json.Decoder takes many times as long for a few short members.
type objectReader struct {
	rest  []byte
	begun bool // the opening brace was read
	found bool // at least one member was
}

// next returns the next member, with its value as it is written, or a nil value after the
// last.
func (r *objectReader) next() (name string, value json.RawMessage, err error) {
	if !r.begun {
		if !r.skip('{') {
			return "", nil, errNotObject
		}
		r.begun = true
	}
	if r.skip('}') {
		if r.space(); len(r.rest) > 0 {
			return "", nil, errTrailing
		}
		return "", nil, nil
	}
	if r.found && !r.skip(',') {
		return "", nil, errNotJSON
	}
	r.found = true
	if name, err = unquote(r.value()); err != nil || !r.skip(':') {
		return "", nil, errNotJSON
	}
	if value = r.value(); !isPlain(value) && !isNatural(value) && !json.Valid(value) {
		return "", nil, errNotJSON
	}
	return name, value, nil
}

// unquote returns the text of a JSON string.
func unquote(v []byte) (text string, err error) {
	if isPlain(v) {
		return string(v[1 : len(v)-1]), nil
	}
	if len(v) == 0 || v[0] != '"' {
		return "", errNotJSON
	}
	err = json.Unmarshal(v, &text)
	return text, err
}

// isPlain reports whether v is a JSON string of nothing but printable ASCII, and no escapes. Most
// are, and encoding/json takes many times as long.
func isPlain(v []byte) bool {
	if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
		return false
	}
	for _, c := range v[1 : len(v)-1] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// isNatural reports whether v is a JSON number of nothing but digits.
func isNatural(v []byte) bool {
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(v) == 1 || len(v) > 1 && v[0] != '0'
}

// skip skips spaces and then c, if that comes next.
func (r *objectReader) skip(c byte) bool {
	r.space()
	if len(r.rest) == 0 || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

func (r *objectReader) space() { r.rest = bytes.TrimLeft(r.rest, " \t\r\n") }

// value takes what looks like one value. If it is not JSON, neither is the object.
func (r *objectReader) value() []byte {
	r.space()
	end, depth, quoted := 0, 0, false
	for ; end < len(r.rest); end++ {
		c := r.rest[end]
		switch {
		case quoted && c == '\\':
			end++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth == 0 && bytes.IndexByte([]byte(",:}] \t\r\n"), c) >= 0:
			return r.take(end)
		}
	}
	return r.take(end)
}

func (r *objectReader) take(n int) []byte {
	n = min(n, len(r.rest))
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

// object is a JSON object being written.
type object []byte

// add adds a member; value is JSON.
func (o *object) add(name string, value []byte) {
	separator := byte(',')
	if *o == nil {
		separator = '{'
	}
	*o = append(append(*o, separator, '"'), name...)
	*o = append(append(*o, '"', ':'), value...)
}

// end returns the object.
func (o object) end() []byte {
	if o == nil {
		return []byte("{}")
	}
	return append(o, '}')
}
