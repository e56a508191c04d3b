// Package command is the command line that pqbench and its comparison with other queues share.
package command

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

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Main runs a program until it is interrupted, and exits with the code that run returns.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Line is a command line that measures something.
type Line struct {
	// Options have the defaults of the flags, and then what the flags say.
	bench.Options
	// Measure is called with the options, which are valid.
	Measure func(context.Context, bench.Options) (*bench.Report, error)

	only, json string
	seconds    float64
	started    bool // flags and arguments were accepted
}

// AddFlags adds the flags that all command lines have.
func (l *Line) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&l.Pqbridge, "pqbridge", "", "pqbridge `program` to start and measure; required")
	flags.StringVar(&l.NATSServer, "nats-server", "", "nats-server `program` to start; required")
	flags.StringVar(&l.Dir, "dir", ".", "`folder` for the temporary folder with the data")
	flags.Float64Var(&l.seconds, "seconds", l.Duration.Seconds(), "`seconds` to measure each operation")
	flags.IntVar(&l.Rounds, "rounds", l.Rounds, "`number` of rounds that time is split into; operations take turns")
	flags.IntVar(&l.Payload, "payload", 128, "`bytes` of an item")
	flags.IntVar(&l.Clients, "clients", 128, "`number` of clients, each with one request in flight")
	flags.IntVar(&l.Connections, "connections", 4, "`number` of connections that the clients share")
	flags.IntVar(&l.Priorities, "priorities", 10, "`number` of different priorities")
	flags.StringVar(&l.only, "only", "", "measure only what has a name that matches this regular `expression`, and what that is compared with")
	flags.StringVar(&l.json, "json", "", "also write the result to this `file`, a JSON object a line for each row")
}

// Run executes a command line, prints its error to stderr, and returns the exit code.
func (l *Line) Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.Args, root.SilenceErrors, root.SilenceUsage = cobra.NoArgs, true, true
	root.RunE = func(cmd *cobra.Command, _ []string) error { return l.measure(cmd) }
	root.AddCommand(l.echo())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err) // nowhere left to report a failure
	if !l.started {
		return ExitUsage
	}
	return ExitError
}

// echo is the hidden command that the benchmark starts as its yardstick.
func (l *Line) echo() *cobra.Command {
	return &cobra.Command{
		Use:    "echo",
		Short:  "Answer requests with their own payload",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.started = true
			return bench.Echo(cmd.Context(), os.Getenv("NATS_URL"))
		},
	}
}

func (l *Line) measure(cmd *cobra.Command) error {
	o := l.Options
	o.Duration = time.Duration(l.seconds * float64(time.Second))
	o.Log = cmd.ErrOrStderr()
	if l.only != "" {
		var err error
		if o.Only, err = regexp.Compile(l.only); err != nil {
			return fmt.Errorf("--only: bad regular expression: %w", err)
		}
	}
	self, err := os.Executable()
	if err := errors.Join(err, o.Validate()); err != nil {
		return err
	}
	o.Echo = []string{self, "echo"}

	clear := showProgress(&o)
	l.started = true
	report, err := l.Measure(cmd.Context(), o)
	clear()
	if err != nil {
		return err
	}
	if err := report.Write(cmd.OutOrStdout()); err != nil || l.json == "" {
		return err
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		return err
	}
	return os.WriteFile(l.json, text.Bytes(), 0o644)
}

// showProgress says on a terminal what is being done. Clear removes that.
func showProgress(o *bench.Options) (clear func()) {
	file, ok := o.Log.(*os.File)
	if !ok {
		return func() {}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func() {}
	}

	const eraseLine = "\r\x1b[K"
	o.Progress = func(done, all int, what string) { _, _ = fmt.Fprintf(file, "%s%d/%d %s", eraseLine, done, all, what) }
	return func() { _, _ = fmt.Fprint(file, eraseLine) }
}
