package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// superviseRun waits for run to end. The first signal calls stop, with the signal as the
// cause; the second one is not waited for.
func superviseRun(ended <-chan error, signals <-chan os.Signal, stop context.CancelCauseFunc) error {
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		stop(signalError{s})
	}
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		return fmt.Errorf("%w: it came after another one, so the shutdown is not waited for", signalError{s})
	}
}

// signalError is a signal as the cause of an end.
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

// surviveSignals keeps SIGHUP and SIGPIPE, which end a program by default, from ending the
// service until the function that it returns is called.
//
// SIGPIPE comes when whoever read the log or the standard output has gone. What is
// written there is lost then.
//
// SIGHUP asks other services to read their configuration again. This one has nothing to
// read. With -dev it says that the terminal was closed: that calls stop. A process that
// was started to ignore it, as nohup does, does.
func surviveSignals(dev bool, stop context.CancelCauseFunc, logger *slog.Logger) (end func()) {
	signal.Ignore(syscall.SIGPIPE)
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	hangups, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(over)
		for s := range hangups {
			if dev {
				stop(signalError{s})
			} else {
				logger.Info("SIGHUP changes nothing: a changed configuration needs a restart")
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-over
	}
}

// errStuck says that a shutdown was given up.
var errStuck = errors.New("the shutdown is not over after PQ_SHUTDOWN_TIMEOUT, and is not waited for: " +
	"what was acknowledged is safe")

// endWithin calls f and returns its error. If ctx has ended and f goes on for longer than the
// timeout, endWithin returns errStuck and leaves f behind, for the process to end: a disk
// that hangs can keep a store from being closed for as long as it likes.
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
