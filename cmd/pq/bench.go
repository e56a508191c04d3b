package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/load"
	"github.com/pqbridge/pqbridge/subjects"
)

// benchmark is the command line of pq bench.
type benchmark struct {
	queue
	load.Options
	size string
	json bool
}

func newBench(a *app) *cobra.Command {
	b := &benchmark{queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "bench QUEUE [push|pop|mixed]",
		Short: "Put load on a queue and print rates and latencies",
		Long: `Put load on a queue of the service that is running, and print how many requests
it answers and how fast. Each client sends its next request when the reply to
the last one is there. mixed, the default, pushes and pops in turn.

Only items that pq bench pushed are popped: a queue with others is refused.
With --verify the queue must be empty; at the end it is emptied, and whatever
was lost, popped twice or popped out of order is counted. The exit code is 1 if
there is any.`,
		Example: `  pq bench try
  pq bench try push --count 100000 --size 100-10000
  pq bench try --rate 2000 --duration 1m --verify`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.name, b.Mode = args[0], load.Mixed
			if len(args) == 2 {
				b.Mode = load.Mode(args[1])
			}
			return b.run(cmd)
		},
	}
	b.queue.addFlags(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&b.Clients, "clients", 64, "`number` of clients, each with one request under way")
	flags.IntVar(&b.Connections, "connections", 4, "`number` of connections they share")
	flags.StringVar(&b.size, "size", "128", "`bytes` of a value, or a range such as 100-10000")
	flags.IntVar(&b.Priorities, "priorities", 10, "`number` of different priorities, from 0 up")
	flags.Float64Var(&b.Rate, "rate", 0, "most requests per `second` of all clients; 0 means no limit")
	flags.DurationVar(&b.Duration, "duration", 10*time.Second, "how `long`; 0 means until --count is reached")
	flags.Int64Var(&b.Count, "count", 0, "`number` of requests; 0 means until --duration is over")
	flags.BoolVar(&b.Verify, "verify", false, "check that nothing is lost, popped twice or out of order")
	flags.BoolVar(&b.json, "json", false, "print the result as JSON, times in seconds")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (b *benchmark) run(cmd *cobra.Command) error {
	if _, err := b.message(subjects.Push, subjects.Enqueue); err != nil { // the queue's name
		return err
	}
	o := b.Options
	o.Queue, o.FIFO = b.name, b.fifo
	var err error
	if o.Grammar, err = subjects.New(b.priorityPrefix, b.fifoPrefix); err != nil {
		return usageError{err}
	}
	if o.MinSize, o.MaxSize, err = parseSizes(b.size); err != nil {
		return usageError{err}
	}
	if o.Count > 0 && !cmd.Flags().Changed("duration") {
		o.Duration = 0
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	o.Dial = func() (*nats.Conn, error) {
		options, err := b.options()
		if err != nil {
			return nil, err
		}
		nc, err := nats.Connect(b.server, options...)
		if err != nil {
			return nil, fmt.Errorf("cannot connect to NATS at %s: %w", b.server, err)
		}
		return nc, nil
	}
	if isTerminal(cmd.ErrOrStderr()) {
		bar := b.progressBar(cmd, &o)
		defer func() { _ = bar.Clear() }()
	}
	report, err := load.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	if b.json {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	} else {
		err = report.Write(cmd.OutOrStdout())
	}
	if err == nil && report.Verify != nil && !report.Verify.OK() {
		err = errors.New("the service did not keep its promises: see the last line")
	}
	return err
}

// progressBar counts requests, or milliseconds where only the time is limited.
func (b *benchmark) progressBar(cmd *cobra.Command, o *load.Options) *progressbar.ProgressBar {
	whole := o.Count
	if whole == 0 {
		whole = o.Duration.Milliseconds()
	}
	bar := progressbar.NewOptions64(whole, progressbar.OptionSetWriter(cmd.ErrOrStderr()),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	o.Progress = func(answered int64, elapsed time.Duration) {
		bar.Describe(fmt.Sprintf("%d requests, %.0f/s", answered, float64(answered)/elapsed.Seconds()))
		done := answered
		if o.Count == 0 {
			done = elapsed.Milliseconds()
		}
		_ = bar.Set64(min(done, whole)) // a bar that cannot be drawn is no reason to stop
	}
	return bar
}

// parseSizes parses "128" or "100-10000".
func parseSizes(text string) (least, most int, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	least, err1 := strconv.Atoi(first)
	most, err2 := strconv.Atoi(last)
	if errors.Join(err1, err2) != nil {
		return 0, 0, fmt.Errorf("--size is %q: want a number of bytes, or a range such as 100-10000", text)
	}
	return least, most, nil
}
