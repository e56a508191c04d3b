package bench

import (
	"context"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// cluster is the FoundationDB cluster that the service keeps its queues in.
type cluster interface {
	// file is the path of the cluster file.
	file() string
	// Used is the usage of fdbserver, unknown unless the cluster is private.
	Used() process.Usage
	// transactions counts the cluster's transactions so far. It waits until the
	// cluster updates its counters: one second if it is private, else five.
	transactions(ctx context.Context) (transactions, error)
	// naive returns clients that push and pop by the published recipe, with one
	// transaction per item, in a queue of their own.
	naive(clients, priorities int, value []byte) (push, pop load)
	// close stops a private cluster, and clears the key prefixes in any other.
	close(prefixes []string) error
}

// transactions are numbers of transactions.
type transactions struct {
	committed, conflicted int64
}

// wasted is the share of the transactions since before that conflicted.
func (t transactions) wasted(before transactions) float64 {
	conflicted := float64(t.conflicted - before.conflicted)
	return conflicted / (conflicted + float64(t.committed-before.committed))
}
