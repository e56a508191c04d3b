//go:build fdb

package main

import (
	"crypto/rand"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

// The requests whose memory depends on the store fit into the service on FoundationDB too.
// FoundationDB's client counts, but not its server. Without an installed FoundationDB it is
// skipped, and says so.
func TestPeakMemoryOnFoundationDB(t *testing.T) {
	const items = 40
	cluster, root := testenv.FDBClusterFile(t), "pq-"+rand.Text()
	t.Cleanup(func() { clearRoots(t, cluster, root) })
	p := startPeak(t, items, peakSetting(t, "PQ_TEST_PEAK_MEMORY", peakMemory)<<20, "PQ_STORE=fdb",
		"PQ_FDB_CLUSTER_FILE="+cluster, "PQ_KEY_PREFIX="+root, "PQ_FIFO_KEY_PREFIX="+root+"q")
	defer p.watchOthers()()

	p.row("push, 16 at once", p.fill)
	p.row("pops for nobody, of each item at once", p.popForNobody)
	const batch = `{"batch":1000,"ack_wait":"1h"}`
	var tokens []string
	p.atOnce("lease "+batch+", 16 at once", 16, func(int) int { return p.take(batch, &tokens) })
	p.atOnce("-NAK of each lease, at once", len(tokens),
		func(i int) int { return p.one(tokens[i], "-NAK") })
	p.atOnce("peek, 50 at once", 50, func(int) int { return p.one("pq.jobs.peek.max", "") })
	p.atOnce("push.batch of 7 items, 4 at once", 4, p.pushBatch)
	p.row("pop of as many queues with 90,000 bytes, at once", p.manyQueues)
	p.row("pop {\"batch\":1000}",
		func() int { return p.take(`{"batch":1000,"no_wait":true}`, nil) })
}
