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
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/load"
)

func newBench(a *app) *cobra.Command {
	q := &queue{app: a}
	var o load.Options
	cmd := q.command(&cobra.Command{
		Use:   "bench QUEUE [push|pop|mixed|lease|work]",
		Short: "Put load on queues and print rates and latencies",
		Long: `mixed, the default, pushes, leases and acks, and removes the rest. lease (and
ack), work and pop take what push left. pop works on bench and bench-NAME only.`,
		Example: `  pq bench try --rate 2000 --duration 1m`,
	}, func(mode []string) error {
		o.Mode = load.Mode(cmp.Or(strings.Join(mode, ""), string(load.Mixed)))
		return q.bench(o)
	})

	set := cmd.Flags()
	set.IntVar(&o.Queues, "queues", 1, "`N` queues by turns: QUEUE-1 to QUEUE-N")
	set.IntVar(&o.Clients, "clients", 64, "`N` clients, one request each")
	set.IntVar(&o.Connections, "connections", 4, "`N` connections that they share")
	set.IntVar(&o.Batch, "batch", 1, "`N` items in a request")
	set.IntVar(&o.Size, "size", 128, "`BYTES` of a value")
	set.IntVar(&o.Priorities, "priorities", 10, "`N` priorities, from 0 up")
	set.IntVar(&o.Result, "result", 0, "results of `BYTES`, kept if the queue has keep")
	set.Float64Var(&o.Rate, "rate", 0, "`N` items per second at most; 0 means no limit")
	flags.Duration(set, &o.Duration, "duration", 10*time.Second,
		"run for `DURATION`; if 0, until --count")
	set.Int64Var(&o.Count, "count", 0, "stop after `N` items; if 0, after --duration")
	q.addJSON("print the result as JSON, times in seconds")
	return cmd
}

func (q *queue) bench(o load.Options) error {
	o.Queue, o.FIFO, o.Grammar, o.Timeout = q.name, q.fifo, q.grammar, q.Timeout
	if o.Count > 0 && !q.cmd.Flags().Changed("duration") {
		o.Duration = 0
	}

	if err := o.Validate(); err != nil {
		return exit.Usage(err)
	}

	options, err := q.Options()
	if err != nil {
		return err
	}

	o.Dial = func() (*nats.Conn, error) { return q.ConnectAny(options) }

	report, err := load.Run(q.cmd.Context(), o)
	if errors.Is(err, client.ErrNoBridge) {
		err = withoutBridge(err)
	}

	switch {
	case report == nil:
		return err
	case q.json:
		return cmp.Or(json.NewEncoder(q.cmd.OutOrStdout()).Encode(report), err)
	default:
		return cmp.Or(report.Write(q.cmd.OutOrStdout()), err)
	}
}
