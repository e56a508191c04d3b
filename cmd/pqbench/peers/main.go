// Command peers compares a pqbridge with other programs that queues are kept in: the same load at
// the same durability, each answer after a sync of the disk where the peer can, all in turns within
// one run. Servers are started for the run, with their data in a temporary folder. Those that are
// not installed are named and left out. Exit codes are those of pqbench.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &comparison{}
	root := c.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	_, _ = fmt.Fprintln(stderr, "peers:", err) // nowhere left to report a failure
	if !c.started {
		return 2
	}
	return 1
}

// comparison is the command line.
type comparison struct {
	bench.Options
	seconds    float64
	only, json string
	peers      []string
	progress   bool
	started    bool // flags and arguments were accepted
}

func (c *comparison) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "peers",
		Short: "Compare a bridge with other queues",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },

		SilenceErrors: true,
		SilenceUsage:  true,
	}

	flags := root.Flags()
	flags.SortFlags = false
	flags.StringVar(&c.Pqbridge, "pqbridge", "", "pqbridge `program` to start and measure; required")
	flags.StringVar(&c.NATSServer, "nats-server", "", "nats-server `program` to start, for the bridge and for JetStream; required")
	flags.StringVar(&c.Dir, "dir", ".", "`folder` for the temporary folder with the data; as root, one that the user postgres can reach")
	flags.StringSliceVar(&c.peers, "peers", nil, "`names` of the peers, such as redis,beanstalkd (default all)")
	flags.Float64Var(&c.seconds, "seconds", 3, "`seconds` to measure each row")
	flags.IntVar(&c.Rounds, "rounds", 3, "`number` of rounds that time is split into; all take turns")
	flags.IntVar(&c.Payload, "payload", 128, "`bytes` of an item")
	flags.IntVar(&c.Clients, "clients", 128, "`number` of clients, each with one request in flight")
	flags.IntVar(&c.Connections, "connections", 4, "`number` of connections that the clients share, where the peer's library can")
	flags.IntVar(&c.Priorities, "priorities", 10, "`number` of different priorities")
	flags.IntSliceVar(&c.Backlogs, "backlog", nil, "also measure with these `numbers` of queued items")
	flags.StringVar(&c.only, "only", "", "measure only the rows whose names match this regular `expression`, and echo")
	flags.StringVar(&c.json, "json", "", "also write the result to this `file`, a JSON object a line for each row")
	flags.BoolVar(&c.progress, "progress", false, "say what is being measured")

	root.AddCommand(&cobra.Command{
		Use:    "echo",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.started = true
			return bench.Echo(cmd.Context(), os.Getenv("NATS_URL"), cmd.OutOrStdout())
		},
	})
	return root
}

// options completes the options from the flags.
func (c *comparison) options(log io.Writer) (bench.Options, []bench.Peer, error) {
	o := c.Options
	o.Duration = time.Duration(c.seconds * float64(time.Second))
	o.Log = log

	if c.progress {
		o.Progress = func(done, all int, what string) { _, _ = fmt.Fprintf(log, "%d/%d %s\n", done, all, what) }
	}
	if c.only != "" {
		var err error
		if o.Only, err = regexp.Compile(c.only); err != nil {
			return o, nil, fmt.Errorf("--only: bad regular expression: %w", err)
		}
	}

	self, err := os.Executable()
	if err != nil {
		return o, nil, err
	}
	o.Echo = []string{self, "echo"}
	peers, err := choose(allPeers(o.NATSServer), c.peers)
	return o, peers, errors.Join(err, o.Validate())
}

func (c *comparison) run(cmd *cobra.Command) error {
	o, peers, err := c.options(cmd.ErrOrStderr())
	if err != nil {
		return err
	}

	c.started = true
	report, err := bench.RunPeers(cmd.Context(), o, peers)
	if err != nil {
		return err
	}
	if err := report.Write(cmd.OutOrStdout()); err != nil || c.json == "" {
		return err
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		return err
	}
	return os.WriteFile(c.json, text.Bytes(), 0o644)
}

// allPeers returns the peers in the order of the tables.
func allPeers(natsServer string) []bench.Peer {
	return slices.Concat([]bench.Peer{redis(), postgreSQL()}, rabbitMQ(), []bench.Peer{beanstalkd(), jetStream(natsServer)})
}

// choose returns the peers with these names, or all. The first word of a name is enough: rabbitmq
// has two peers.
func choose(all []bench.Peer, names []string) ([]bench.Peer, error) {
	if len(names) == 0 {
		return all, nil
	}

	var chosen []bench.Peer
	for _, name := range names {
		unknown := true
		for _, p := range all {
			program, _, _ := strings.Cut(p.Name, " ")
			if strings.EqualFold(p.Name, name) || strings.EqualFold(program, name) {
				chosen = append(chosen, p)
				unknown = false
			}
		}
		if unknown {
			return nil, fmt.Errorf("--peers: no peer is called %q", name)
		}
	}
	return chosen, nil
}
