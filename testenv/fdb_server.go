//go:build fdb

package testenv

import (
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/fdbserver"
)

// FDBServer is a private FoundationDB cluster of one process, with its data in
// a temporary folder.
type FDBServer = fdbserver.Server

// FDBStorage is a storage engine of FoundationDB.
type FDBStorage = fdbserver.Storage

// Storage engines. Both write to disk before they answer.
const (
	FDBMemory = fdbserver.Memory
	FDBSSD    = fdbserver.SSD
)

// StartFDB starts a server for one test that disturbs it; other tests share one through
// FDB. It ends with the test, or with the process if the test does not finish. Where
// FoundationDB is not installed, the test fails if PQ_TEST_FDB=1 and is skipped
// otherwise.
func StartFDB(tb testing.TB, storage FDBStorage) *FDBServer {
	tb.Helper()
	requireFDBInstalled(tb)
	server, err := fdbserver.Start("", storage)
	if err != nil {
		tb.Fatalf("FoundationDB: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Errorf("FoundationDB: %v", err)
		}
	})
	return server
}

func requireFDBInstalled(tb testing.TB) {
	tb.Helper()
	for _, name := range []string{"fdbserver", "fdbcli"} {
		if _, err := fdbserver.Program(name); err != nil {
			noFDB(tb, fmt.Sprintf("%s is not installed: %v", name, err))
		}
	}
}
