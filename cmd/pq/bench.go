package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/bench"
)

// benchmark is the command line of pq bench.
type benchmark struct {
	*app
	bench.Options
	seconds  float64
	jsonFile string
}

func newBench(a *app) *cobra.Command {
	b := &benchmark{app: a}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a bridge against a bare echo service",
		Long: `Measure how many requests per second a bridge answers, how fast, and what it
costs, next to a service that does nothing but echo requests over the same NATS
server: no service behind NATS can be faster than that.

With --pqbridge it starts that program with an empty store in a temporary
folder, and with --nats-server a NATS server of its own; both end with the
benchmark. Without --pqbridge it measures the bridge that is running, in the
queue --queue, which must be empty and is empty afterwards.

With --store fdb it also measures programs that use FoundationDB by the
published recipe, without a bridge: each of --clients does one transaction at a
time. Unless there is a cluster file it starts a private FoundationDB of one
process on the ssd engine. pq and pqbridge must be built with -tags fdb.

Push and pop are on disk before they are answered, so put --dir on the kind of
disk you mean to use; a folder in memory measures something else.`,
		Example: `  pq bench --pqbridge bin/pqbridge --nats-server bin/nats-server
  pq bench --pqbridge bin/pqbridge --nats-server bin/nats-server --backlog 10000,1000000
  pq bench --pqbridge bin/pqbridge --nats-server bin/nats-server --store fdb --bridges 1,2,4,8,4,2,1
  pq bench --seconds 10 --payload 1024`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.addFlags(cmd)
	return cmd
}

func (b *benchmark) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&b.Pqbridge, "pqbridge", "", "pqbridge `program` to start and measure")
	flags.StringVar(&b.NATSServer, "nats-server", "", "nats-server `program` to start (with --pqbridge)")
	flags.StringVar(&b.Store, "store", "", "PQ_STORE of the bridge to start: embedded or fdb")
	flags.StringVar(&b.ClusterFile, "cluster-file", "", "FoundationDB cluster `file` to use for --store fdb; default $FDB_CLUSTER_FILE, else a private cluster")
	flags.StringVar(&b.Dir, "dir", ".", "`folder` to make the temporary folder for the data in")
	flags.StringVar(&b.Queue, "queue", "pq-bench", "`name` of the queue to use")
	flags.Float64Var(&b.seconds, "seconds", 5, "`seconds` to measure each operation")
	flags.IntVar(&b.Rounds, "rounds", 5, "`number` of parts of that time; the operations are measured in turn")
	flags.IntVar(&b.Payload, "payload", 128, "`bytes` of an item")
	flags.IntVar(&b.Clients, "clients", 128, "`number` of clients, each with one request under way")
	flags.IntVar(&b.Connections, "connections", 4, "`number` of connections they share")
	flags.BoolVar(&b.Lean, "lean", false, "make the clients themselves cost little processor time; what they measure is less like a crowd of real clients")
	flags.IntVar(&b.Priorities, "priorities", 10, "`number` of different priorities")
	flags.IntSliceVar(&b.Backlogs, "backlog", nil, "compare pop.min, memory and restart with these `numbers` of items queued (with --pqbridge)")
	flags.IntSliceVar(&b.Bridges, "bridges", nil, "compare one queue with these `numbers` of bridges (with --store fdb); best there and back")
	flags.IntVar(&b.Queues, "queues", 0, "compare this `number` of queues of one item each with one queue")
	flags.StringVar(&b.jsonFile, "json", "", "also write the result to this `file`")
}

func (b *benchmark) run(cmd *cobra.Command) error {
	o := b.Options
	o.Server, o.PriorityPrefix, o.FIFOPrefix = b.server, b.priorityPrefix, b.fifoPrefix
	o.Duration = time.Duration(b.seconds * float64(time.Second))
	o.Dial = func(url string) (*nats.Conn, error) {
		options, err := b.options()
		if err != nil {
			return nil, err
		}
		return nats.Connect(url, options...)
	}
	if o.Store == bench.StoreFDB && o.ClusterFile == "" {
		o.ClusterFile = os.Getenv("FDB_CLUSTER_FILE")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Echo = []string{self, "bench-echo"}
	o.EchoEnv = b.env(cmd.Flags())
	o.Log = cmd.ErrOrStderr()
	if isTerminal(o.Log) {
		bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(o.Log),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
		o.Progress = func(done, all int, what string) { showProgress(bar, done, all, what) }
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	report, err := bench.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	if err := report.Write(cmd.OutOrStdout()); err != nil {
		return err
	}
	return b.writeJSON(report)
}

// showProgress moves the bar and says what is being done.
func showProgress(bar *progressbar.ProgressBar, done, all int, what string) {
	bar.ChangeMax(all)
	bar.Describe(what)
	_ = bar.Set(done) // a bar that cannot be drawn is no reason to stop
}

// writeJSON writes the report to the file of --json, if there is one.
func (b *benchmark) writeJSON(report *bench.Report) error {
	if b.jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.jsonFile, append(text, '\n'), 0o644)
}
