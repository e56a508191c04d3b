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
				stop(signalErrors[s])
			} else if time.Since(first) >= sigonce.Window {
				return fmt.Errorf("second signal, %w: exiting without waiting for the shutdown",
					signalErrors[s])
			}
		}
	}
}

// signalErrors has each signal that main asks for, as the cause of a shutdown.
var signalErrors = map[os.Signal]error{
	os.Interrupt:    errors.New("SIGINT"),
	syscall.SIGTERM: errors.New("SIGTERM"),
	syscall.SIGHUP:  errors.New("SIGHUP"),
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
