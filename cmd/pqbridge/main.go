// Command pqbridge serves durable priority queues and FIFO queues over NATS.
//
// Its configuration is environment variables: see pqbridge -help. It ends on
// SIGTERM or SIGINT, after it has finished what had arrived; a second signal
// ends it at once. See signals.go for the others.
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
	"syscall"
	"time"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, os.Args[1:], os.Stdout, os.Stderr) }()
	if err := superviseRun(ended, signals, stop); err != nil {
		complain(err)
		os.Exit(1)
	}
}

// complain writes err to the standard error, if whoever is to read that takes it soon: a
// pipe that is full must not keep the process from ending.
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

// run is the command. It returns nil for an orderly end.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("pqbridge", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	help := flags.Bool("help", false, "print this help")
	version := flags.Bool("version", false, "print the version")
	dev := flags.Bool("dev", false, "start a NATS server on 127.0.0.1 in this process, and use it")
	check := flags.Bool("healthcheck", false, "ask the running pqbridge at PQ_HTTP_ADDR if it is ready; exit code 1 if not")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp) || *help:
		return printHelp(stdout, flags)
	case err != nil:
		return fmt.Errorf("%w; see pqbridge -help", err)
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not understood: pqbridge takes flags and environment variables only; see pqbridge -help", flags.Arg(0))
	case *version:
		_, err := fmt.Fprintln(stdout, "pqbridge", describeVersion())
		return err
	}
	c, err := loadConfig(*dev)
	if !*check { // which needs none of them
		err = errors.Join(err, c.checkSecrets())
	}
	if err != nil {
		return fmt.Errorf("the configuration is not usable:\n%w", err)
	}
	if *check {
		return checkReady(ctx, c.HTTPAddr)
	}
	return serve(ctx, c, *dev, newLogger(c, stderr), stdout)
}

func newLogger(c *config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
