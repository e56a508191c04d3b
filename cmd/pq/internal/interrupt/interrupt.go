// Package interrupt lets requests under way finish at the first signal, and ends pq at a later one.
package interrupt

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/internal/sigonce"
)

// Error means that a signal stopped pq, which finished the requests under way.
type Error struct{ Signal syscall.Signal }

func (e Error) Error() string { return fmt.Sprintf("stopped by a signal (%v)", e.Signal) }

// Context returns a context that SIGINT, SIGTERM and SIGHUP end, with an
// [Error] as its cause. A later signal kills the process.
func Context() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	Notify(signals)
	go func() { // lives as long as the process
		s, _ := (<-signals).(syscall.Signal)
		cancel(Error{s})
		<-time.After(sigonce.Window)
		signal.Stop(signals)
	}()
	return ctx
}

// Notify relays the signals that end pq.
func Notify(signals chan<- os.Signal) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as nohup asks
			signal.Notify(signals, s)
		}
	}
}

// Say tells the user when a signal comes that cmd still waits for what
// is under way, and what killing it would cost. The function it returns ends that.
func Say(cmd *cobra.Command, cost string) (stop func() bool) {
	return context.AfterFunc(cmd.Context(), func() {
		// There is nowhere to report a failure.
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"pq: %v: finishing what is under way; another signal ends pq at once, and %s\n",
			context.Cause(cmd.Context()), cost)
	})
}

// Await returns what f returns, or the cause of ctx's end if that comes first. Then
// f goes on until the process exits, which it is about to do: nothing else stops a
// read from a terminal or a connection attempt of the NATS client.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = f()
	}()

	select {
	case <-done:
		return value, err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
