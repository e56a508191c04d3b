//go:build fdb

package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// FDB returns an empty database on FoundationDB for one test: the keys below a random
// prefix. When the test ends, they are removed and the database is closed, if the test
// has not closed it. Keys may be 32 bytes shorter than elsewhere.
//
// FDBClusterFile says which cluster it is.
func FDB(tb testing.TB) kv.Database {
	tb.Helper()
	options := fdbkv.Options{ClusterFile: FDBClusterFile(tb), TransactionTimeout: Patience}
	db, err := fdbkv.Open(options)
	if err != nil {
		tb.Fatalf("FoundationDB: %v", err)
	}

	prefix := keyPrefix("pqtest/" + rand.Text()[:16] + "/")
	tb.Cleanup(func() {
		if err := errors.Join(db.Close(), removeAll(options, prefix)); err != nil {
			tb.Errorf("FoundationDB: removing the test's keys: %v", err)
		}
	})

	return prefixed{db, prefix}
}

func removeAll(options fdbkv.Options, prefix keyPrefix) error {
	db, err := fdbkv.Open(options)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return kv.UpdateIdempotent(ctx, db, func(tx kv.Transaction) error {
		tx.ClearRange(prefix.span(kv.Range{End: []byte{0xff}}))
		return nil
	})
}

// FDBClusterFile returns the cluster file of a cluster: the one named by FDB_CLUSTER_FILE, or else
// a private server that all tests of the process share and that ends with them. Others use that
// cluster too, so stay below a random prefix.
//
// If none is named and FoundationDB is not installed, the test fails if PQ_TEST_FDB=1 and is
// skipped otherwise.
func FDBClusterFile(tb testing.TB) string {
	tb.Helper()
	if file := os.Getenv(fdbClusterVariable); file != "" {
		return file
	}

	requireFDBInstalled(tb)
	sharedFDB.Do(func() { sharedFDB.server, sharedFDB.err = startFDB(harness.Port(tb), FDBMemory) })
	if sharedFDB.err != nil {
		tb.Fatalf("FoundationDB: %v", sharedFDB.err)
	}

	return sharedFDB.server.ClusterFile()
}

// FDBDiskClusterFile is FDBClusterFile for what measures: if no cluster is named, it starts a
// server with the ssd engine, which ends with the test.
func FDBDiskClusterFile(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(fdbClusterVariable) != "" {
		return FDBClusterFile(tb)
	}
	return StartFDB(tb, FDBSSD).ClusterFile()
}

// sharedFDB is the server that the tests of a process share.
var sharedFDB struct {
	sync.Once
	server *FDBServer
	err    error
}

// FDBGoroutines returns, for goleak to ignore, the goroutines that live as long as a
// process once it has used FoundationDB. The shared server ends with the tests.
func FDBGoroutines() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/" +
			"fdb.executeWithRunningNetworkThread.func1"),
		goleak.IgnoreAnyFunction("github.com/pqbridge/pqbridge/testenv.(*FDBServer).wait"),
		goleak.Cleanup(func(code int) {
			if server := sharedFDB.server; server != nil {
				_ = server.stop() // its files are temporary
			}
			os.Exit(code)
		}),
	}
}
