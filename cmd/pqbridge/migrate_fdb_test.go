//go:build fdb

package main

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
)

// The queues of a service move to a real FoundationDB and to another folder, are served at each
// place, and keep their order. A store in use, or one that moved before, is refused.
func TestMigrateCommand(t *testing.T) {
	dir, cluster, root := t.TempDir(), testenv.FDBClusterFile(t), "pq-"+rand.Text()
	variables := func(more ...string) []string {
		return append([]string{
			"PQ_FDB_CLUSTER_FILE=" + cluster,
			"PQ_KEY_PREFIX=" + root,
			"PQ_FIFO_KEY_PREFIX=" + root + "q",
		}, more...)
	}

	t.Cleanup(func() { clearRoots(t, cluster, root) })
	first := "PQ_DATA_DIR=" + filepath.Join(dir, "first")
	last := "PQ_DATA_DIR=" + filepath.Join(dir, "last")

	migrate := func(target, data, want string, fails bool) {
		t.Helper()
		stdout, stderr, err := runCommand(t, []string{"-migrate", target}, variables(data))
		if (err != nil) != fails || !strings.Contains(stdout+stderr, want) {
			t.Fatalf("%v, want %q in\n%s%s", err, want, stdout, stderr)
		}
	}

	serve := func(value string, more ...string) {
		t.Helper()
		c := startDev(t, variables(more...)...)
		request(t, connect(t, c.nats), "pq.jobs.push", value)
		request(t, connect(t, c.nats), "q.line.push", value)

		if len(more) == 1 {
			migrate("fdb", more[0], "has to end first", true)
		}

		c.stop(syscall.SIGTERM)
	}

	serve("1", first)
	migrate("fdb", first, "complete and compared: 2 items in 2 queues", false)
	migrate("fdb", first, "migrated to this target before", true)
	serve("2", first, "PQ_STORE=fdb")
	migrate("embedded", first, "has to be empty", true)
	migrate("embedded", last, "complete and compared: 4 items in 2 queues", false)
	serve("3", last)
	c := startDev(t, variables(last)...)

	for _, subject := range []string{"pq.jobs.pop.min", "q.line.pop"} {
		for _, want := range []string{"1", "2", "3"} {
			pops(t, connect(t, c.nats), subject, want)
		}
	}

	c.stop(syscall.SIGTERM)
}

// clearRoots removes what the test stored in a cluster that others may use.
func clearRoots(t *testing.T, cluster, root string) {
	db, err := fdbkv.Open(fdbkv.Options{ClusterFile: cluster, TransactionTimeout: testenv.Patience})
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	begin := tuple.Tuple{root}.Pack()
	begin = begin[:len(begin)-1] // without the end of the string

	err = kv.UpdateIdempotent(context.Background(), db, func(tx kv.Transaction) error {
		tx.ClearRange(kv.Range{Begin: begin, End: append(begin[:len(begin):len(begin)], 0xff)})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
