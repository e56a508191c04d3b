// Command peers compares a pqbridge with other programs that queues are kept in: the same load at
// the same durability, each answer after a sync of the disk where the peer can, all in turns within
// one run. Servers are started for the run, with their data in a temporary folder. Those that are
// not installed are named and left out. Exit codes are those of pqbench.
package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/command"
)

func main() { command.Main(run) }

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	line := &command.Line{Options: bench.Options{Duration: 3 * time.Second, Rounds: 3}}
	var names []string
	root := &cobra.Command{
		Use:   "peers",
		Short: "Compare a bridge with other queues",
		Long: `Compare a bridge with other queues, those that are installed. As root, --dir must
be a folder that the user postgres can reach.`,
		PreRunE: func(*cobra.Command, []string) error {
			_, err := choose(allPeers(""), names)
			return err
		},
	}

	line.AddFlags(root)
	root.Flags().StringSliceVar(&names, "peers", nil, "`names` of the peers, such as redis,beanstalkd (default all)")
	root.Flags().IntSliceVar(&line.Backlogs, "backlog", nil, "also measure with these `numbers` of queued items")

	line.Measure = func(ctx context.Context, o bench.Options) (*bench.Report, error) {
		peers, err := choose(allPeers(o.NATSServer), names)
		if err != nil {
			return nil, err
		}
		return bench.RunPeers(ctx, o, peers)
	}
	return line.Run(ctx, root, args, stdout, stderr)
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
