package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/internal/sigonce"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// work is the command line of pq work.
type work struct {
	queue
	program []string // with its arguments
	dropOn  []int
	jobs    int
	ackWait time.Duration
	timeout time.Duration // of a job, 0 for none
	retry   time.Duration // see client.WorkerOptions.RetryDelay, but 0 is at once

	keeps   bool // the queue keeps finished jobs
	log     *slog.Logger
	stopped chan struct{} // closed when no more items are taken
}

func newWork(a *app) *cobra.Command {
	w := &work{queue: queue{app: a}, stopped: make(chan struct{})}
	cmd := w.command(&cobra.Command{
		Use:                   "work QUEUE [flags] -- COMMAND [ARG...]",
		DisableFlagsInUseLine: true,
		SuggestFor:            []string{"subscribe", "sub", "consume"},
		Short:                 "Run a command for each item",
		Long: `Lease items, and run COMMAND with the value of each as standard input. Exit code
0 acknowledges the item; if it is kept, what COMMAND printed is its result. Any
other gives it back, up to max_deliver deliveries. Leases last while it runs.

The environment has PQ_ID, PQ_PRIORITY, PQ_DELIVERIES and the like, and headers:
Trace-Id is PQ_HEADER_TRACE_ID. The first signal lets commands finish, and pq
exits with 0. A later one ends them, and their items go back.`,
		Example: "  pq work jobs --jobs 4 --drop-on 65 -- ./handle.sh",
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash == 1 && len(args) > 1 {
				return nil
			}
			return errors.New("want a queue and a command: pq work QUEUE -- COMMAND")
		},
	}, func(command []string) error { return w.run(command) })

	set := cmd.Flags()
	set.IntVarP(&w.jobs, "jobs", "j", 1, "run up to `N` commands at once")
	set.IntSliceVar(&w.dropOn, "drop-on", nil, "exit `CODES` that make the item a dead letter")
	flags.Duration(set, &w.ackWait, "ack-wait", 0,
		"lease for `DURATION`; else as config says, or 30s")
	flags.Duration(set, &w.retry, "retry-delay", time.Second,
		"retry in `DURATION` without backoff")
	flags.Duration(set, &w.timeout, "job-timeout", 0,
		"end and fail a command after `DURATION`")
	set.BoolVar(&w.max, "max", false, "take the last item: largest priority, newest")
	return cmd
}

func (w *work) run(command []string) error {
	cmd := w.cmd
	w.program = command
	err := cmp.Or(
		flags.AtLeastOne("jobs", w.jobs),
		flags.CheckAckWait(w.ackWait),
		flags.CheckWait("job-timeout", w.timeout),
		flags.InBounds("retry-delay", w.retry, 0, settings.MaxDelay),
	)
	if err != nil {
		return err
	}

	if slices.ContainsFunc(w.dropOn, func(code int) bool { return code < 1 || code > 255 }) {
		return exit.Usagef("--drop-on: want exit codes from 1 to 255")
	}

	if _, err := exec.LookPath(w.program[0]); err != nil {
		return exit.Usagef("cannot run the command %s: %w", w.program[0], errors.Unwrap(err))
	}

	s, err := w.open(cmd.Context(), w.Lasting(w.sayRefusal)...)
	if err != nil {
		return err
	}

	defer s.nc.Close()
	if err := w.prepare(cmd.Context(), s); err != nil {
		return err
	}

	w.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	worker, err := s.queue.NewWorker(w.do(s), client.WorkerOptions{
		Concurrency: w.jobs, AckWait: w.ackWait, JobTimeout: w.timeout, Max: w.max,
		RetryDelay: cmp.Or(w.retry, -1), Logger: w.log,
	})
	if err != nil {
		return s.explain(err, "")
	}

	return w.finish(cmd, s, worker)
}

// prepare finds out early what makes the work impossible.
func (w *work) prepare(ctx context.Context, s *session) error {
	info, err := s.queue.Info(ctx)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		w.say("waiting for items of %s", w.name)
		return nil
	case err != nil:
		return s.explain(err, "")
	}

	w.keeps = info.Settings.Keep > 0
	w.say("%s", waitText(w.name, info, time.Now()))
	return nil
}

// waitText says what there is to do in a queue, or what keeps pq work waiting.
func waitText(name string, i *client.QueueInfo, now time.Time) string {
	text := fmt.Sprintf("%s in %s, %s leased, %s delayed", items(i.Ready, "ready"), name,
		terminal.Grouped(i.Leased), terminal.Grouped(i.Delayed))
	switch until := i.Settings.PauseUntil; {
	case until.Equal(target.Forever):
		return fmt.Sprintf("%s is paused until pq resume: %s", name, text)
	case until.After(now):
		return fmt.Sprintf("%s is paused until %s: %s", name, timeText(until), text)
	case isUnused(i):
		return fmt.Sprintf("queue %s is not in use yet: waiting for items", name)
	}
	return text
}

// errNoReader ends pq work whose output nobody reads, as it would end other tools.
var errNoReader = errors.New("standard output: the reader has gone (broken pipe)")

// finish runs the worker until a signal comes, NATS refuses what the worker needs, or nobody reads
// the output any more.
func (w *work) finish(cmd *cobra.Command, s *session, worker *client.Worker) error {
	signals := make(chan os.Signal, 1)
	interrupt.Notify(signals)
	defer signal.Stop(signals)

	ended := make(chan error, 1)
	running, leaseNoMore := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer leaseNoMore()
	go func() { ended <- worker.Run(running) }()

	var why error
	select {
	case err := <-ended:
		return s.explain(err, "")
	case <-terminal.ReaderGone(cmd.OutOrStdout()):
		why = errNoReader
	case <-cmd.Context().Done():
		why = context.Cause(cmd.Context())
	}

	leaseNoMore()
	close(w.stopped)
	w.say("%v: finishing what is under way; another signal ends the commands", why)
	another, err := anotherSignal(signals, ended)
	switch {
	case another != nil:
		time.AfterFunc(sigonce.Window, func() { signal.Stop(signals) }) // then the next one kills
		w.kill(s, worker, ended)
		number, _ := another.(syscall.Signal)
		return interrupt.Error{Signal: number}
	case err == nil && cmd.Context().Err() == nil: // Ctrl-C may have ended the reader as well
		return errors.New("ended, because nobody reads standard output any more")
	}
	return err
}

// anotherSignal waits for a signal after the first, or until the work has ended.
func anotherSignal(signals <-chan os.Signal, ended <-chan error) (os.Signal, error) {
	for same := time.After(sigonce.Window); ; {
		select {
		case err := <-ended:
			return nil, err
		case another := <-signals:
			if same == nil {
				return another, nil
			}
		case <-same:
			same = nil
		}
	}
}

// lastRequests is how long pq waits, once the commands should have ended, for the answers to the
// requests that give their items back.
const lastRequests = time.Second

// kill ends the commands, and waits for that. Items that it cannot give back come back when their
// leases are over.
func (w *work) kill(s *session, worker *client.Worker, ended <-chan error) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = worker.Shutdown(now) // which has no time
	if !s.nc.IsConnected() {
		s.nc.Close() // so that no request waits
	}

	select {
	case <-ended:
	case <-time.After(endCommand + lastRequests):
		s.nc.Close()
		<-ended
	}
}
