// Command pq pushes to and pops from the queues of a pqbridge over NATS.
//
// Exit codes: 0 on success, 1 on failure, 2 for a usage error or bad input that was
// noticed before anything was sent, 3 if the queue is empty, 4 if a job is not over
// yet, 128 and the signal's number if a signal ended pq early.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// Exit codes. Scripts depend on them.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitEmpty   = 3
	exitNotOver = 4
	// exitSignal is added to the number of the signal, as shells do.
	exitSignal = 128
)

func main() {
	// With SIGPIPE handled, a write to a closed pipe fails instead of killing pq.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(exitCode(execute(interrupt.Context(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)))
}

// execute runs one command line and prints its error to stderr.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root, started := newRoot()
	root.SetArgs(priorityLast(root, args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // which prints to the output set until then
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		refuseUnknown(completion)
	}

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return nil
	}

	// What fails before a command's own code runs are its flags and arguments.
	var bad exit.Error
	if !*started && !errors.As(err, &bad) {
		err = exit.Usage(err)
	}

	// There is nowhere to report a failure.
	_, _ = fmt.Fprintln(stderr, "pq:", terminal.Lines(err.Error()))
	if errors.As(err, &bad) && bad.Usage {
		_, _ = fmt.Fprintln(stderr, "See "+cmd.CommandPath()+" --help.")
	}

	return err
}

// priorityLast puts -- before the last argument of pq mv if that is a priority below zero, which
// looks like a flag.
func priorityLast(root *cobra.Command, args []string) []string {
	last := len(args) - 1
	cmd, _, err := root.Find(args)
	if err != nil || cmd.Name() != "mv" || slices.Contains(args, "--") {
		return args
	}

	_, err = subjects.ParsePriority(args[last])
	if err != nil || !strings.HasPrefix(args[last], "-") {
		return args
	}
	return slices.Insert(slices.Clone(args), last, "--")
}

func exitCode(err error) int {
	var stopped interrupt.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &stopped):
		return exitSignal + int(stopped.Signal)
	case errors.As(err, new(exit.Error)):
		return exitUsage
	case errors.Is(err, client.ErrEmpty), errors.Is(err, client.ErrNotFound):
		return exitEmpty
	case errors.As(err, new(notOver)):
		return exitNotOver
	default:
		return exitError
	}
}
