package bench

import "context"

// cluster is the FoundationDB cluster that the service keeps its queues in.
type cluster interface {
	// file is the path of the cluster file.
	file() string
	// private is whether the cluster ends with the benchmark.
	private() bool
	// used is what fdbserver has used, unknown if the cluster is not private.
	used() usage
	// transactions counts the cluster's transactions so far. It waits for the
	// cluster's next count: a second, or five if it is not private.
	transactions(ctx context.Context) (transactions, error)
	// naive returns clients that push and clients that pop by the published
	// recipe, each with a transaction of its own for each item, in a queue of
	// their own.
	naive(clients, priorities int) (push, pop *load)
	// close ends what was started, or removes the items of naive clients.
	close() error
}

// transactions are numbers of transactions.
type transactions struct {
	committed, conflicted int64
}

// wasted is the share of the transactions since before that were done in vain.
func (t transactions) wasted(before transactions) float64 {
	conflicted := float64(t.conflicted - before.conflicted)
	return conflicted / (conflicted + float64(t.committed-before.committed))
}
