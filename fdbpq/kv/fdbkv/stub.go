//go:build !fdb

package fdbkv

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Built says whether this program was built with the tag fdb. Without it, Open returns an error.
const Built = false

// Functions that take types of the binding exist only with the build tag fdb. In other builds each
// name is a constant, and the compiler quotes it in the error about a call:
//
//	cannot call fdbkv.Wrap (untyped string constant
//	"needs FoundationDB's client: go build -tags fdb")
const (
	// New, with -tags fdb, returns a DB for a database that the program has opened with the
	// binding:
	//
	//	func New(handle fdb.Database, timeout time.Duration) (*DB, error)
	New = missing

	// Wrap, with -tags fdb, lets the queues work in a transaction of the binding. The program
	// commits the transaction.
	//
	//	func Wrap(tr fdb.Transaction) kv.Transaction
	Wrap = missing

	// WrapRead, with -tags fdb, lets the queues read in what fdb.Database.ReadTransact gives to its
	// function, or in a Snapshot:
	//
	//	func WrapRead(rt fdb.ReadTransaction) kv.Reader
	WrapRead = missing

	// The compiler cuts constants off after 72 characters.
	missing = "needs FoundationDB's client: go build -tags fdb"
)

// DB is a FoundationDB cluster. There is none in programs built without the tag fdb.
type DB struct{ kv.Database }

// Open returns an error that wraps errors.ErrUnsupported, because this program was built without
// the tag fdb.
func Open(Options) (*DB, error) {
	return nil, fmt.Errorf("fdbkv: this program was built without FoundationDB: "+
		"install the FoundationDB client package (libfdb_c and its headers) "+
		"and build with -tags fdb: %w", errors.ErrUnsupported)
}
