package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/subjects"
)

// work is the command line of pq work.
type work struct {
	queue
	jobs    flags.Count
	dropOn  []int
	ackWait time.Duration
	retry   retryDelay
	program []string // with its arguments

	stopped chan struct{} // closed when no more items are taken
}

func newWork(a *app) *cobra.Command {
	w := &work{queue: queue{app: a, verb: subjects.AckLease}, jobs: 1, stopped: make(chan struct{})}
	cmd := w.command(&cobra.Command{
		Use:                   "work QUEUE [flags] -- COMMAND [ARG...]",
		DisableFlagsInUseLine: true,
		Short:                 "Run a command for each item",
		Long: `Lease one item after the other, and run COMMAND with its value as standard
input. Exit code 0 acknowledges the item. Any other gives it back, until it has
had max_deliver deliveries. The lease is extended while COMMAND runs.

The environment has PQ_ID, PQ_PRIORITY, PQ_DELIVERIES and the like, and headers:
Trace-Id is PQ_HEADER_TRACE_ID. The first signal lets commands finish, and pq
exits with 0. A later one ends them, and their items go back.`,
		Example: `  pq work jobs --jobs 4 -- ./handle.sh
  pq work jobs --drop-on 65 -- sh -c "jq -e .user"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash == 1 && len(args) > 1 {
				return nil
			}
			return errors.New("want a queue and a command: pq work QUEUE -- COMMAND")
		},
	}, func(command []string) error { return w.run(command) })

	set := cmd.Flags()
	set.VarP(&w.jobs, "jobs", "j", "run up to this `many` commands at once, else one")
	set.IntSliceVar(&w.dropOn, "drop-on", nil, "exit `codes` for which the item becomes a dead letter")
	set.DurationVar(&w.ackWait, "ack-wait", 0, "`length` of leases; else as pq config says, or 30s")
	set.DurationVar(&w.retry.first, "retry-delay", time.Second, "`pause` after failures without a backoff; else 1s")
	set.BoolVar(&w.max, "max", false, "take the last item: largest priority, newest")
	flags.WithoutDefault(set, "jobs", "ack-wait", "retry-delay")
	return cmd
}

func (w *work) run(command []string) error {
	cmd := w.cmd
	w.program = command
	switch {
	case w.jobs < 1:
		return exit.UsageError{Err: fmt.Errorf("--jobs is %d: want at least 1", w.jobs)}
	case slices.ContainsFunc(w.dropOn, func(code int) bool { return code < 1 || code > 255 }):
		return exit.UsageError{Err: errors.New("--drop-on: want exit codes from 1 to 255")}
	}

	if err := flags.CheckAckWait(w.ackWait); err != nil {
		return err
	}
	if err := flags.InBounds("retry-delay", w.retry.first, 0, subjects.MaxDelay); err != nil {
		return err
	}
	if _, err := exec.LookPath(w.program[0]); err != nil {
		return exit.UsageError{Err: fmt.Errorf("cannot run the command %s: %w", w.program[0], errors.Unwrap(err))}
	}

	refused := make(chan error, 1)
	blindfold := w.ackWait != 0 // then nobody needs the settings
	s, err := w.open(cmd.Context(), nats.MaxReconnects(-1), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) && !(blindfold && w.retry.refused(&w.queue, err)) { // all else passes
			select {
			case refused <- err:
			default:
			}
		}
	}))
	if err != nil {
		return err
	}

	defer s.close()
	if err := w.prepare(cmd.Context(), s, refused); err != nil {
		return err
	}

	worker, err := s.queue.NewWorker(w.do(cmd, s), client.WorkerOptions{
		Concurrency: int(w.jobs), AckWait: w.ackWait, Max: w.max,
		Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
	})
	if err != nil {
		return s.explain(err, "")
	}
	return w.finish(cmd, s, worker, refused)
}

// prepare finds out early what makes the work impossible, and how long leases are.
func (w *work) prepare(ctx context.Context, s *session, refused chan error) error {
	if w.ackWait != 0 {
		return nil // whoever says so needs no permission to read the settings
	}

	stop := context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
	defer stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-refused:
			s.end(err)
		case <-done:
		}
	}()

	settings, err := s.queue.Settings(s.usable)
	if errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w; with --ack-wait pq work needs no settings", s.explain(err, ""))
	}
	if err != nil {
		return s.outdated(subjects.Config, w.kind(), s.explain(err, ""))
	}

	w.ackWait = settings.LeaseWait()
	return nil
}
