// Command pqbridge serves durable priority queues and FIFO queues over NATS.
//
// Environment variables configure it: see pqbridge -help. On SIGTERM or SIGINT it finishes the
// requests that have arrived and exits. Another signal more than a second later makes it exit at
// once.
//
// It exits with 0 after a complete shutdown, else with 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // for schedules, because a container may know no zones

	"github.com/pqbridge/pqbridge/cmd/internal/ready"
)

func main() {
	keepOthersOut()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signal.Notify(signals, syscall.SIGHUP) // the terminal was closed; a service ignores it
	}
	ctx, stop := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, os.Args[1:], os.Stdout, os.Stderr) }()
	if err := superviseRun(ended, signals, stop); err != nil {
		complain(err)
		os.Exit(1)
	}
}

// complain prints err to standard error. It gives up after a second: a full pipe must not keep the
// process from exiting.
func complain(err error) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = fmt.Fprintln(os.Stderr, "pqbridge:", err) // nowhere left to report a failure
	}()
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}

// run runs the command. When it returns, all its goroutines have ended, unless the error is
// errStuck.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("pqbridge", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	help := flags.Bool("help", false, "")
	version := flags.Bool("version", false, "")
	dev := flags.Bool("dev", false, "")
	check := flags.Bool("healthcheck", false, "")
	backup := flags.String("backup", "", "")
	keep := flags.Int("keep", 0, "")
	restore := flags.String("restore", "", "")
	migrate := flags.String("migrate", "", "")
	err := flags.Parse(args)

	switch {
	case errors.Is(err, flag.ErrHelp) || *help:
		return printHelp(stdout)
	case err != nil:
		return fmt.Errorf("%w; see pqbridge -help", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: "+
			"pqbridge takes only flags and environment variables; see pqbridge -help", flags.Arg(0))
	case *version:
		_, err := fmt.Fprintln(stdout, "pqbridge", describeVersion())
		return err
	}

	actions := given(flags, "dev", "healthcheck", "backup", "restore", "migrate")
	if len(actions) > 1 {
		return fmt.Errorf("-%s: want only one of them; see pqbridge -help",
			strings.Join(actions, " and -"))
	}

	backsUp := slices.Contains(actions, "backup")
	if len(given(flags, "keep")) > 0 && (*keep < 1 || !backsUp) {
		return fmt.Errorf("-keep %d: want 1 or more, and -backup with it; see pqbridge -help",
			*keep)
	}

	serves := len(actions) == 0 || *dev

	c, err := loadConfig(*dev)
	if serves { // the other actions need no files
		err = errors.Join(err, c.checkFiles())
	}
	if err != nil {
		return fmt.Errorf("invalid configuration:\n%w", err)
	}

	logger := newLogger(c, stderr)
	switch {
	case *check && c.HTTPAddr == httpOff:
		return errors.New("PQ_HTTP_ADDR is off: there is nothing to ask")
	case *check:
		return ready.Check(ctx, c.HTTPAddr)
	case backsUp:
		return backUp(ctx, c, *backup, *keep, logger, stdout)
	case slices.Contains(actions, "restore"):
		return restoreBackup(ctx, c, *restore, logger, stdout)
	case slices.Contains(actions, "migrate"):
		return migrateStore(ctx, c, *migrate, logger, stdout)
	}
	return serve(ctx, c, *dev, logger, stdout)
}

// given returns which of the flags with these names are set.
func given(flags *flag.FlagSet, names ...string) (set []string) {
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains(names, f.Name) && f.Value.String() != "false" {
			set = append(set, f.Name)
		}
	})
	return set
}

func newLogger(c *config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(c.LogLevel), ReplaceAttr: readableDuration}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// readableDuration makes a duration text, such as "7s", also in JSON, which would have nanoseconds.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.String())
	}
	return a
}
