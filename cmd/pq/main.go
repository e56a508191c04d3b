// Command pq pushes to and pops from the queues of a pqbridge over NATS.
//
// Exit codes: 0 on success, 1 on failure, 2 for a usage error, 3 if the queue is
// empty, 128 and the signal's number if a signal ended it before it was done.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes. Scripts depend on them.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitEmpty = 3
	// exitSignal is added to the number of the signal, as shells do.
	exitSignal = 128
)

func main() {
	// Who asks for SIGPIPE gets an error from the write instead of being killed.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(exitCode(run(interruptible(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)))
}

// run executes one command line. Errors are printed to stderr before it
// returns them.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root, started := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return nil
	}
	// Whatever fails before a command's own code runs is about its flags and
	// arguments.
	if !*started {
		err = usageError{err}
	}
	_, _ = fmt.Fprintln(stderr, "pq:", err) // nowhere left to report a failure
	if errors.As(err, new(usageError)) {
		_, _ = fmt.Fprintln(stderr, "See pq help, or pq COMMAND --help.")
	}
	return err
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var stopped interrupted
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.Is(err, errEmpty):
		return exitEmpty
	case errors.As(err, &stopped):
		return exitSignal + int(stopped.signal)
	default:
		return exitError
	}
}
