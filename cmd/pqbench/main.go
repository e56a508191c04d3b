// Command pqbench measures a pqbridge against a bare echo service and, on FoundationDB,
// against programs that use the published recipe. It is the project's own measuring rig;
// to put load on a running service use pq bench.
//
// Exit codes: 0 on success, 1 on failure, 2 for a usage error.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(exitCode(err))
}

// run executes one command line and prints its error to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b := &benchmark{}
	root := b.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return nil
	}
	if !b.started { // the error is about flags or arguments
		err = usageError{err}
	}
	_, _ = fmt.Fprintln(stderr, "pqbench:", err) // nowhere left to report a failure
	return err
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(usageError)):
		return exitUsage
	default:
		return exitError
	}
}

// benchmark is the command line.
type benchmark struct {
	bench.Options
	seconds  float64
	only     string
	jsonFile string
	started  bool // flags and arguments were accepted
}

func (b *benchmark) command() *cobra.Command {
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
  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --waiters 10000,100000
  pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --seconds 10 --payload 1024`,
		Args:             cobra.NoArgs,
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { b.started = true },
		RunE:             func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}

	b.addFlags(root)
	root.AddCommand(newEcho())
	return root
}

func (b *benchmark) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&b.Pqbridge, "pqbridge", "", "pqbridge `program` to start and measure; required")
	flags.StringVar(&b.NATSServer, "nats-server", "", "nats-server `program` to start; required")
	flags.StringVar(&b.Store, "store", "", "PQ_STORE of the bridge to start: embedded or fdb")
	flags.StringVar(&b.ClusterFile, "cluster-file", "", "FoundationDB cluster `file` for --store fdb (env FDB_CLUSTER_FILE); without one a private cluster")
	flags.StringVar(&b.Dir, "dir", ".", "`folder` for the temporary folder with the data")
	flags.Float64Var(&b.seconds, "seconds", 5, "`seconds` to measure each operation")
	flags.IntVar(&b.Rounds, "rounds", 5, "`number` of rounds that time is split into; operations take turns")
	flags.IntVar(&b.Payload, "payload", 128, "`bytes` of an item")
	flags.IntVar(&b.Clients, "clients", 128, "`number` of clients, each with one request in flight")
	flags.IntVar(&b.Connections, "connections", 4, "`number` of connections that the clients share")
	flags.IntVar(&b.Priorities, "priorities", 10, "`number` of different priorities")
	flags.StringVar(&b.only, "only", "", "measure only the operations whose names match this regular `expression`, echo, and push")
	flags.IntSliceVar(&b.Backlogs, "backlog", nil, "compare pop.min, memory and restart with these `numbers` of queued items")
	flags.IntSliceVar(&b.Bridges, "bridges", nil, "compare one queue with these `numbers` of bridges (with --store fdb), best up and down again")
	flags.IntVar(&b.Queues, "queues", 0, "compare one queue with this `number` of queues of one item each")
	flags.IntSliceVar(&b.Waiters, "waiters", nil, "watch a service at rest with these `numbers` of waiting pops")
	flags.IntVar(&b.Delayed, "delayed", 0, "watch a service at rest with this `number` of delayed items, and how long others wait when all fall due at once; 1000000 take about three minutes")
	flags.IntVar(&b.DelayedQueues, "delayed-queues", 10_000, "`number` of queues of those")
	flags.StringVar(&b.jsonFile, "json", "", "also write the result to this `file`, a JSON object a line for each row")
}

func (b *benchmark) run(cmd *cobra.Command) error {
	o := b.Options
	o.Duration = time.Duration(b.seconds * float64(time.Second))
	if o.Store == bench.StoreFDB && o.ClusterFile == "" {
		o.ClusterFile = os.Getenv("FDB_CLUSTER_FILE")
	}

	if b.only != "" {
		var err error
		if o.Only, err = regexp.Compile(b.only); err != nil {
			return usageError{fmt.Errorf("--only: bad regular expression: %w", err)}
		}
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Echo = []string{self, "echo"}
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

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// showProgress moves the bar and says what is being done.
func showProgress(bar *progressbar.ProgressBar, done, all int, what string) {
	bar.ChangeMax(all)
	bar.Describe(what)
	_ = bar.Set(done) // a bar that cannot be drawn does not matter
}

// writeJSON writes the report to the file of --json, if there is one.
func (b *benchmark) writeJSON(report *bench.Report) error {
	if b.jsonFile == "" {
		return nil
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		return err
	}
	return os.WriteFile(b.jsonFile, text.Bytes(), 0o644)
}
