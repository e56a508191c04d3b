package testenv

import (
	"os"
	"testing"
)

// Environment variables that ask for tests on FoundationDB. If one is set,
// a FoundationDB that cannot be reached fails the test; otherwise tests that
// need one are skipped where none is installed.
const (
	// fdbAskedVariable asks for a private server if it is "1".
	fdbAskedVariable = "PQ_TEST_FDB"
	// fdbClusterVariable is the cluster file of a running cluster to use
	// instead. Tests keep below random prefixes there and clean up.
	fdbClusterVariable = "FDB_CLUSTER_FILE"
)

// noFDB ends a test that needs FoundationDB where there is none.
func noFDB(tb testing.TB, why string) {
	tb.Helper()
	if os.Getenv(fdbAskedVariable) == "1" || os.Getenv(fdbClusterVariable) != "" {
		tb.Fatalf("FoundationDB was asked for by %s or %s, but %s", fdbAskedVariable, fdbClusterVariable, why)
	}
	tb.Skipf("not tested on FoundationDB: %s", why)
}
