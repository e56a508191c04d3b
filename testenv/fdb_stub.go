//go:build !fdb

package testenv

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// FDB ends the test: see the package built with the tag fdb.
func FDB(tb testing.TB) kv.Database {
	tb.Helper()
	notTagged(tb)
	return nil
}

// FDBClusterFile ends the test: see the package built with the tag fdb.
func FDBClusterFile(tb testing.TB) string {
	tb.Helper()
	notTagged(tb)
	return ""
}

// FDBDiskClusterFile ends the test: see the package built with the tag fdb.
func FDBDiskClusterFile(tb testing.TB) string { return FDBClusterFile(tb) }

// StartFDBCluster ends the test: see the package built with the tag fdb.
func StartFDBCluster(tb testing.TB, _ ...string) (file string, pids, ports []int) {
	tb.Helper()
	notTagged(tb)
	return "", nil, nil
}

func notTagged(tb testing.TB) {
	tb.Helper()
	const why = "the tests were built without -tags fdb"
	if os.Getenv(fdbClusterVariable) != "" {
		tb.Fatalf("FoundationDB was asked for by %s, but %s", fdbClusterVariable, why)
	}
	noFDB(tb, why)
}

// FDBGoroutines returns nothing without the tag fdb.
func FDBGoroutines() []goleak.Option { return nil }
