//go:build !fdb

package fdbkv

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
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
