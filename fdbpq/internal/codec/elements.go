package codec

import (
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

// decodeInts reads what appendInts wrote into fields, and returns what follows.
func decodeInts(b []byte, fields []int64) (rest []byte, err error) {
	for i := range fields {
		if fields[i], b, err = tuple.DecodeInt(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}
