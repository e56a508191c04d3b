package codec

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// element stores an element of a tuple in to, if it has the right type.
func element[T any](from any, to *T) bool {
	value, ok := from.(T)
	*to = value
	return ok
}

// appendInts appends elements of a tuple.
func appendInts(b []byte, fields ...int64) []byte {
	for _, field := range fields {
		b = tuple.AppendInt(b, field)
	}
	return b
}

// decoder reads the elements of a tuple one after the other. err is the first problem; from then on
// all elements are zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) int() (v int64) {
	if d.err == nil {
		v, d.rest, d.err = tuple.DecodeInt(d.rest)
	}
	return v
}

// bytes may share memory with what is read.
func (d *decoder) bytes() (v []byte) {
	if d.err == nil {
		v, d.rest, d.err = tuple.DecodeBytes(d.rest, nil)
	}
	return v
}

func (d *decoder) text() (v string) {
	if d.err == nil {
		v, d.rest, d.err = tuple.DecodeString(d.rest)
	}
	return v
}

// time reads microseconds since 1970.
func (d *decoder) time() time.Time { return time.UnixMicro(d.int()).UTC() }

var (
	errRandom = errors.New("the random part does not have 20 bytes")
	errMore   = errors.New("more bytes follow")
)

// random reads the random part of an id.
func (d *decoder) random() (r [RandomSize]byte) {
	if d.err != nil {
		return r
	}
	var b []byte
	if b, d.rest, d.err = tuple.DecodeBytes(d.rest, r[:0]); d.err == nil && len(b) != RandomSize {
		d.err = errRandom
	}
	copy(r[:], b) // which usually is there already
	return r
}

// id reads the priority, count and random part of an id.
func (d *decoder) id() ID { return ID{Priority: d.int(), Count: d.int(), Random: d.random()} }

// more reports whether there are more elements.
func (d *decoder) more() bool { return d.err == nil && len(d.rest) > 0 }

// end returns err, or an error if there are more elements.
func (d *decoder) end() error {
	if d.more() {
		return errMore
	}
	return d.err
}
