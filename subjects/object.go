package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// What can be wrong with an object.
var (
	errNotObject = errors.New("not an object")
	errNotJSON   = errors.New("not JSON")
	errTrailing  = errors.New("something after the object")
)

// jsonOptions reads JSON as encoding/json does, but refuses members given twice.
var jsonOptions = []jsontext.Options{jsontext.AllowInvalidUTF8(true)}

// decoders keeps decoders, because requests with options are frequent.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// duplicateError is for a member that is given twice.
type duplicateError struct{ name string }

func (e duplicateError) Error() string { return quote(e.name) + " given twice" }

// eachMember calls visit for the members of a JSON object, with values as they are written,
// until that returns an error. A value is part of payload.
func eachMember(payload []byte, visit func(name string, value json.RawMessage) error) error {
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(payload), jsonOptions...)
	if d.PeekKind() != jsontext.KindBeginObject {
		return errNotObject
	}
	_, _ = d.ReadToken() // the brace

	for d.PeekKind() != jsontext.KindEndObject {
		token, err := d.ReadToken()
		if err != nil {
			return malformed(err)
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return malformed(err)
		}
		if err := visit(name, json.RawMessage(value)); err != nil {
			return err
		}
	}

	_, _ = d.ReadToken() // the other brace
	if _, err := d.ReadToken(); err != io.EOF {
		return errTrailing
	}
	return nil
}

// malformed returns what an error of a decoder means to whoever wrote the object.
func malformed(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax) {
		return duplicateError{syntax.JSONPointer.LastToken()}
	}
	return errNotJSON
}

// shown returns a JSON value as an error shows it: as it is written, unless that could not be sent
// in a header.
func shown(v json.RawMessage) string {
	unprintable := func(c rune) bool { return c < ' ' || c > '~' }
	if len(v) == 0 || len(v) > maxQuoted || strings.ContainsFunc(string(v), unprintable) {
		return quote(string(v))
	}
	return string(v)
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
