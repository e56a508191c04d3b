package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// oneInterruption is how long signals count as one and the same. A single
// Ctrl-C or timeout(1) often arrives as several: programs send theirs to a
// child and again to its group, and so does a terminal that goes away.
const oneInterruption = time.Second

// interrupted is the end by a signal after what was under way is finished.
type interrupted struct{ signal syscall.Signal }

func (e interrupted) Error() string { return fmt.Sprintf("stopped by a signal (%v)", e.signal) }

// interruptible returns a context that SIGINT, SIGTERM and SIGHUP end, with an
// [interrupted] as its cause. A later signal ends the process at once.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup has asked to ignore it
			signal.Notify(signals, s)
		}
	}
	go func() { // lives as long as the process
		s, _ := (<-signals).(syscall.Signal)
		cancel(interrupted{s})
		<-time.After(oneInterruption)
		signal.Stop(signals)
	}()
	return ctx
}

// sayInterrupted tells the user, as soon as a signal comes, that cmd still waits
// for what is under way. The function it returns ends that.
func sayInterrupted(cmd *cobra.Command, lost string) (stop func() bool) {
	return context.AfterFunc(cmd.Context(), func() {
		// Nowhere is left to report a failure.
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pq: %v: finishing what is under way; another signal ends pq at once, and %s\n",
			context.Cause(cmd.Context()), lost)
	})
}

// await returns what f returns, or the cause of the end of ctx if that comes
// first. f then goes on until the process ends, which is about to: nothing else
// ends a read from a terminal, or a connection attempt of the NATS client.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
