//go:build !fdb

package fdbkv

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Built says whether this program was built with the tag fdb. Without it, Open returns an error.
const Built = false

// Functions that take the binding's types exist only with the build tag fdb. In other
// builds a constant has the name of each, and the compiler's error about a call quotes
// it:
//
//	cannot call fdbkv.Wrap (untyped string constant "needs FoundationDB's client: go build -tags fdb")
const (
	// New is a function in programs built with -tags fdb.
	New = missing
	// Wrap is a function in programs built with -tags fdb.
	Wrap = missing
	// WrapRead is a function in programs built with -tags fdb.
	WrapRead = missing

	// The compiler cuts constants off after 72 characters.
	missing = "needs FoundationDB's client: go build -tags fdb"
)

// DB is a FoundationDB cluster. There is none in programs built without the
// tag fdb.
type DB struct{ kv.Database }

// Open returns an error that wraps errors.ErrUnsupported, because this program
// was built without the tag fdb.
func Open(Options) (*DB, error) {
	return nil, fmt.Errorf("fdbkv: this program was built without FoundationDB: install the FoundationDB "+
		"client package (libfdb_c and its headers) and build with -tags fdb: %w", errors.ErrUnsupported)
}
