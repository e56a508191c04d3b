package testenv

import (
	"os"
	"testing"
)

// Environment variables that ask for tests on FoundationDB. If FoundationDB was asked
// for and is not available, the tests that need it fail; otherwise they are skipped
// where it is not installed.
const (
	// fdbAskedVariable asks for private servers if it is "1".
	fdbAskedVariable = "PQ_TEST_FDB"
	// fdbClusterVariable is the cluster file of a running cluster to use instead. Tests
	// stay below random prefixes there and clean up.
	fdbClusterVariable = "FDB_CLUSTER_FILE"
)

// noFDB ends a test that needs a private server, because of why.
func noFDB(tb testing.TB, why string) {
	tb.Helper()
	if os.Getenv(fdbAskedVariable) == "1" {
		tb.Fatalf("FoundationDB was asked for by %s=1, but %s", fdbAskedVariable, why)
	}
	tb.Skipf("not tested on FoundationDB: %s", why)
}
