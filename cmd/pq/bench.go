package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/load"
)

// benchmark is the command line of pq bench.
type benchmark struct {
	queue
	load.Options
	json bool
}

func newBench(a *app) *cobra.Command {
	b := &benchmark{queue: queue{app: a}}
	cmd := b.command(&cobra.Command{
		Use:   "bench QUEUE [push|pop|mixed|lease|work]",
		Short: "Put load on a queue and print rates and latencies",
		Long: `Put load on a queue and print rates and latencies. mixed, the default, pushes
and pops; pop, lease (and ack) and work (Workers) take what push left.`,
		Example: `  pq bench try --rate 2000 --duration 1m`,
	}, func(mode []string) error {
		b.Mode = load.Mode(cmp.Or(strings.Join(mode, ""), string(load.Mixed)))
		return b.run()
	})

	set := cmd.Flags()
	set.IntVar(&b.Clients, "clients", 64, "`N` clients, one request each")
	set.IntVar(&b.Connections, "connections", 4, "`N` connections that they share")
	set.IntVar(&b.Batch, "batch", 1, "`N` items in a request")
	set.IntVar(&b.Size, "size", 128, "`BYTES` of a value")
	set.IntVar(&b.Priorities, "priorities", 10, "`N` priorities, from 0 up")
	set.Float64Var(&b.Rate, "rate", 0, "`N` items per second at most; 0 means no limit")
	set.DurationVar(&b.Duration, "duration", 10*time.Second,
		"run for `DURATION`; 0 is until --count")
	set.Int64Var(&b.Count, "count", 0, "`N` items; 0 is until --duration")
	set.BoolVar(&b.json, "json", false, "print the result as JSON, times in seconds")
	return cmd
}

func (b *benchmark) run() error {
	cmd, o := b.cmd, b.Options
	o.Queue, o.FIFO, o.Grammar, o.Timeout = b.name, b.fifo, b.grammar, b.Connection.Timeout
	if o.Count > 0 && !cmd.Flags().Changed("duration") {
		o.Duration = 0
	}

	if err := o.Validate(); err != nil {
		return exit.UsageError{Err: err}
	}

	options, err := b.Connection.Options()
	if err != nil {
		return err
	}

	o.Dial = func() (*nats.Conn, error) { return b.ConnectAny(options) }

	switch report, err := load.Run(cmd.Context(), o); {
	case errors.Is(err, client.ErrNoBridge):
		return withoutBridge(err)
	case err != nil:
		return err
	case b.json:
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	default:
		return report.Write(cmd.OutOrStdout())
	}
}
