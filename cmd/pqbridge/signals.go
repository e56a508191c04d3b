package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/pqbridge/pqbridge/cmd/internal/sigonce"
)

// superviseRun waits for run to return. On the first signal it calls stop with the signal as the
// cause. On a second one it returns at once, and the process should exit. Signals within
// sigonce.Window of the first are part of it.
func superviseRun(ended <-chan error, signals <-chan os.Signal,
	stop context.CancelCauseFunc) error {
	var first time.Time
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if first.IsZero() {
				first = time.Now()
				stop(signalError{s})
			} else if time.Since(first) >= sigonce.Window {
				const text = "second signal, %w: exiting without waiting for the shutdown"
				return fmt.Errorf(text, signalError{s})
			}
		}
	}
}

// signalError is a signal as the reason of a shutdown.
type signalError struct{ os.Signal }

// Error implements error.
func (s signalError) Error() string {
	switch s.Signal {
	case os.Interrupt:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	}
	return s.String()
}

// errStuck means that a shutdown took too long.
var errStuck = errors.New("the shutdown took longer than PQ_SHUTDOWN_TIMEOUT; " +
	"exiting without waiting for it, acknowledged items are safe")

// endWithin calls f and returns its error. If f still runs when the timeout has passed since the
// end of ctx, endWithin returns errStuck and leaves f to die with the process: closing a store on a
// disk that hangs can block indefinitely.
func endWithin(ctx context.Context, timeout time.Duration, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("%w (%v)", errStuck, timeout)
	}
}
