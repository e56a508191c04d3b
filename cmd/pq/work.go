package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// work is the command line of pq work.
type work struct {
	queue
	jobs    countFlag
	dropOn  []int
	ackWait time.Duration
	max     bool
	command []string
}

func newWork(a *app) *cobra.Command {
	w := &work{queue: queue{app: a, verb: subjects.AckLease}, jobs: 1}
	cmd := &cobra.Command{
		Use:                   "work QUEUE [flags] -- COMMAND [ARG...]",
		DisableFlagsInUseLine: true,
		Short:                 "Run a command for each item",
		Long: `Lease one item after the other, and run COMMAND with its value as standard
input. Exit code 0 acknowledges the item. Any other gives it back, as backoff
and max_deliver of the queue say. The lease is extended while COMMAND runs.

The environment has PQ_QUEUE, PQ_ID, PQ_PRIORITY, PQ_DELIVERIES, PQ_PUSHED_AT,
and the headers: Trace-Id is PQ_HEADER_TRACE_ID. The first signal lets commands
finish, and pq exits with 0. A later one ends them, and their items go back.`,
		Example: `  pq work jobs --jobs 4 -- ./handle.sh
  pq work jobs --drop-on 65 -- sh -c "jq -e .user"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash == 1 && len(args) > 1 {
				return nil
			}
			return errors.New("want a queue and a command: pq work QUEUE -- COMMAND")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w.name, w.command = args[0], args[1:]
			return w.run(cmd)
		},
	}
	w.queue.addFlags(cmd)
	flags := cmd.Flags()
	flags.VarP(&w.jobs, "jobs", "j", "run up to this `many` commands at once, else one")
	flags.IntSliceVar(&w.dropOn, "drop-on", nil, "exit `codes` for which the item becomes a dead letter")
	flags.DurationVar(&w.ackWait, "ack-wait", 0, "`length` of leases; else as pq config says, or 30s")
	flags.BoolVar(&w.max, "max", false, "take the last item: largest priority, newest")
	withoutDefault(flags, "jobs", "ack-wait")
	return cmd
}

func (w *work) run(cmd *cobra.Command) error {
	switch {
	case w.jobs < 1:
		return usageError{fmt.Errorf("--jobs is %d: want at least 1", w.jobs)}
	case slices.ContainsFunc(w.dropOn, func(code int) bool { return code < 1 || code > 255 }):
		return usageError{errors.New("--drop-on: want exit codes from 1 to 255")}
	}
	if err := w.check(w.max); err != nil {
		return err
	}
	if _, err := exec.LookPath(w.command[0]); err != nil {
		return fmt.Errorf("cannot run the command: %w", err)
	}
	refused := make(chan error, 1)
	s, err := w.open(cmd.Context(), nats.MaxReconnects(-1), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) { // all else passes
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
	worker, err := s.queue.NewWorker(w.do(cmd), client.WorkerOptions{
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
	if err != nil {
		return s.outdated(subjects.Config, w.kind(), s.explain(err, ""))
	}
	if w.ackWait = 30 * time.Second; settings.AckWait != nil {
		w.ackWait = *settings.AckWait
	}
	return nil
}

// finish runs the worker until a signal comes or NATS refuses something.
func (w *work) finish(cmd *cobra.Command, s *session, worker *client.Worker, refused chan error) error {
	signals := make(chan os.Signal, 1)
	notify(signals)
	release := func() { signal.Stop(signals) }
	defer func() { release() }()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(context.WithoutCancel(cmd.Context())) }()
	select {
	case err := <-ended:
		return s.explain(err, "")
	case err := <-refused:
		s.end(err)
		worker.Stop()
		worker.Stop() // nothing can be acknowledged any more
		<-ended
		return s.explain(err, "")
	case <-cmd.Context().Done():
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pq: %v: finishing what is under way; another signal ends the commands\n", context.Cause(cmd.Context()))
	worker.Stop()
	select {
	case err := <-ended:
		return err
	case <-time.After(oneInterruption):
	}
	select { // what came since then was the same interruption
	case <-signals:
	default:
	}
	select {
	case err := <-ended:
		return err
	case another := <-signals:
		time.AfterFunc(oneInterruption, release) // then the next one kills
		release = func() {}
		worker.Stop()
		<-ended
		if number, ok := another.(syscall.Signal); ok {
			return interrupted{number}
		}
		return nil
	}
}

// endCommand is how long a command has to end after a signal.
const endCommand = 5 * time.Second

// do returns what is done with each job.
func (w *work) do(cmd *cobra.Command) client.Work {
	name := filepath.Base(w.command[0])
	return func(ctx context.Context, job *client.Job) error {
		c := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(job.Value), cmd.OutOrStdout(), cmd.ErrOrStderr()
		c.Env = append(os.Environ(), w.environment(job)...)
		c.WaitDelay = endCommand
		killRest := isolate(c)
		err := c.Start()
		if err != nil && ctx.Err() == nil && !errors.Is(err, syscall.E2BIG) { // too long are the headers of this item
			return w.notStarted(ctx, cmd, err)
		}
		if err == nil {
			err = c.Wait()
		}
		killRest()
		var exit *exec.ExitError
		switch {
		case err == nil, errors.Is(err, exec.ErrWaitDelay): // it has ended well, but left a process behind
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &exit) && slices.Contains(w.dropOn, exit.ExitCode()):
			return client.Drop(fmt.Sprintf("%s: %v", name, err))
		default:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// startAgain is the pause after a command could not be started.
const startAgain = time.Second

// notStarted gives an item back, later and uncounted, because it is not the item's fault that the command cannot be
// started: somebody may be replacing it.
func (w *work) notStarted(ctx context.Context, cmd *cobra.Command, err error) error {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pq: cannot start the command, trying again in %v: %v\n", startAgain, err)
	select {
	case <-ctx.Done():
	case <-time.After(startAgain):
	}
	return client.Snooze(0)
}

// environment returns what a command is told about its item.
func (w *work) environment(job *client.Job) []string {
	values := []string{"PQ_QUEUE=" + job.Queue, "PQ_ID=" + job.ID, "PQ_DELIVERIES=" + strconv.FormatInt(job.Deliveries, 10),
		"PQ_PUSHED_AT=" + timeText(job.PushedAt)}
	if hasPriority(&w.queue, &job.Item) {
		values = append(values, "PQ_PRIORITY="+strconv.FormatInt(job.Priority, 10))
	}
	for name, texts := range job.Headers {
		text := strings.ReplaceAll(strings.Join(texts, "\n"), "\x00", "") // which no environment can have
		values = append(values, "PQ_HEADER_"+variableName(name)+"="+text)
	}
	return values
}

// variableName returns a header's name as it stands in the environment.
func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, header)
}
