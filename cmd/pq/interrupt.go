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

// oneInterruption is how long further signals count as part of the first. A single
// Ctrl-C or timeout(1) often arrives as several, because programs signal a child
// and then its process group, and so does a terminal that is closed.
const oneInterruption = time.Second

// interrupted means that a signal stopped pq, which finished what was under way.
type interrupted struct{ signal syscall.Signal }

func (e interrupted) Error() string { return fmt.Sprintf("stopped by a signal (%v)", e.signal) }

// interruptible returns a context that SIGINT, SIGTERM and SIGHUP end, with an
// [interrupted] as its cause. A later signal kills the process.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	notify(signals)
	go func() { // lives as long as the process
		s, _ := (<-signals).(syscall.Signal)
		cancel(interrupted{s})
		<-time.After(oneInterruption)
		signal.Stop(signals)
	}()
	return ctx
}

// notify relays the signals that end pq.
func notify(signals chan<- os.Signal) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as nohup asks
			signal.Notify(signals, s)
		}
	}
}

// sayInterrupted tells the user when a signal comes that cmd still waits for what
// is under way, and what killing it would cost. The function it returns ends that.
func sayInterrupted(cmd *cobra.Command, cost string) (stop func() bool) {
	return context.AfterFunc(cmd.Context(), func() {
		// There is nowhere to report a failure.
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pq: %v: finishing what is under way; another signal ends pq at once, and %s\n",
			context.Cause(cmd.Context()), cost)
	})
}

// await returns what f returns, or the cause of ctx's end if that comes first. Then
// f goes on until the process exits, which it is about to do: nothing else stops a
// read from a terminal or a connection attempt of the NATS client.
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
