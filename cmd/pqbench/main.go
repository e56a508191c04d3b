// Command pqbench measures a pqbridge against a bare echo service and, on FoundationDB,
// against programs that use the published recipe. It is the project's own measuring rig;
// to put load on a running service use pq bench.
//
// Exit codes: 0 on success, 1 on failure, 2 for a usage error.
package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/command"
)

func main() { command.Main(run) }

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	line := &command.Line{Options: bench.Options{Duration: 5 * time.Second, Rounds: 5}}
	root := &cobra.Command{
		Use:   "pqbench",
		Short: "Measure a bridge against a bare echo service",
		Long: `Measure the throughput, latency and cost of a bridge next to a service that only
echoes requests over the same NATS server. No service behind NATS can be faster
than the echo.

It starts --pqbridge with an empty store in a temporary folder, and a NATS server,
--nats-server; both stop with the benchmark.

With --store fdb it also measures programs that use the published FoundationDB
recipe without a bridge: each of --clients runs one transaction at a time.
Without a cluster file it starts a private FoundationDB of one process with the
ssd engine. Both pqbench and pqbridge must be built with -tags fdb.

Pushes and pops are on disk before they are answered, so put --dir on the kind
of disk that the service will use; a folder in memory measures something else.
To put load on a running service, use pq bench.`,
		Example: `  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server
  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --backlog 10000,1000000
  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --store fdb --bridges 1,2,4,8,4,2,1
  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --seconds 10 --payload 1024
  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --jetstream --only prefetch`,
	}

	line.AddFlags(root)
	flags, o := root.Flags(), &line.Options
	flags.StringVar(&o.Store, "store", "", "PQ_STORE of the bridge to start: embedded or fdb")
	flags.StringVar(&o.ClusterFile, "cluster-file", "", "FoundationDB cluster `file` for --store fdb (env FDB_CLUSTER_FILE); without one a private cluster")
	flags.IntSliceVar(&o.Backlogs, "backlog", nil, "compare pop.min, memory and restart with these `numbers` of queued items")
	flags.IntSliceVar(&o.Bridges, "bridges", nil, "compare one queue with these `numbers` of bridges (with --store fdb), best up and down again")
	flags.IntVar(&o.Queues, "queues", 0, "compare one queue with this `number` of queues of one item each")
	flags.IntVar(&o.Memory, "memory", 20_000, "measure the memory of a waiting pop, a queue in use and a leased item with this `number` of them; 0 for none")
	flags.IntVar(&o.Groups, "groups", 100_000, "measure turns beside, and pops past, one group of this `number` of items; 0 for neither")

	flags.BoolVar(&o.JetStream, "jetstream", false, "instead, compare programs that consume through JetStream's API with the same on JetStream itself")

	line.Measure = func(ctx context.Context, o bench.Options) (*bench.Report, error) {
		if o.Store == bench.StoreFDB && o.ClusterFile == "" {
			o.ClusterFile = os.Getenv("FDB_CLUSTER_FILE")
		}
		return bench.Run(ctx, o)
	}
	return line.Run(ctx, root, args, stdout, stderr)
}
