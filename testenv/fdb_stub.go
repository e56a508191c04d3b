//go:build !fdb

package testenv

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const notTagged = "the tests were built without -tags fdb"

// FDB ends the test: see the package built with the tag fdb.
func FDB(tb testing.TB) kv.Database {
	tb.Helper()
	noFDB(tb, notTagged)
	return nil
}

// FDBClusterFile ends the test: see the package built with the tag fdb.
func FDBClusterFile(tb testing.TB) string {
	tb.Helper()
	noFDB(tb, notTagged)
	return ""
}

// FDBGoroutines returns nothing without the tag fdb.
func FDBGoroutines() []goleak.Option { return nil }
