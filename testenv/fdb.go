package testenv

import (
	"os"
	"testing"
)

// Environment variables that ask for tests on FoundationDB. What was asked for
// and cannot be had fails the tests that need it; otherwise they are skipped
// where FoundationDB is not installed.
const (
	// fdbAskedVariable asks for private servers if it is "1".
	fdbAskedVariable = "PQ_TEST_FDB"
	// fdbClusterVariable is the cluster file of a running cluster to use
	// instead. Tests keep below random prefixes there and clean up.
	fdbClusterVariable = "FDB_CLUSTER_FILE"
)

// noFDB ends a test that needs a private server, for the reason why.
func noFDB(tb testing.TB, why string) {
	tb.Helper()
	if os.Getenv(fdbAskedVariable) == "1" {
		tb.Fatalf("FoundationDB was asked for by %s=1, but %s", fdbAskedVariable, why)
	}
	tb.Skipf("not tested on FoundationDB: %s", why)
}
