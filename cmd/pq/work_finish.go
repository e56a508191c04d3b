package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// errNoReader ends pq work whose output nobody reads, as it would end other tools.
var errNoReader = errors.New("standard output: the reader has gone (broken pipe)")

// finish runs the worker until a signal comes, NATS refuses something, or nobody reads the output
// any more.
func (w *work) finish(cmd *cobra.Command, s *session, worker *client.Worker, refused chan error) error {
	signals := make(chan os.Signal, 1)
	interrupt.Notify(signals)
	release := func() { signal.Stop(signals) }
	defer func() { release() }()

	ended := make(chan error, 1)
	go func() { ended <- worker.Run(context.WithoutCancel(cmd.Context())) }()
	stop := func() {
		worker.Stop()
		close(w.stopped)
	}

	say := func(why error, another string) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"pq: %v: finishing what is under way; %s signal ends the commands\n", why, another)
	}
	select {
	case err := <-ended:
		return s.explain(err, "")
	case err := <-refused:
		s.end(err)
		stop()
		w.kill(s, worker, ended) // nothing can be acknowledged any more
		return s.explain(err, "")
	case <-terminal.ReaderGone(cmd.OutOrStdout()):
		say(errNoReader, "a")
	case <-cmd.Context().Done():
		say(context.Cause(cmd.Context()), "another")
	}
	stop()

	finished := func(err error) error {
		if err == nil && cmd.Context().Err() == nil { // Ctrl-C may have ended the reader as well
			return errors.New("ended, because nobody reads standard output any more")
		}
		return err
	}
	select {
	case err := <-ended:
		return finished(err)
	case <-time.After(interrupt.Once):
	}
	another, err := anotherSignal(signals, ended)
	if another == nil {
		return finished(err)
	}
	time.AfterFunc(interrupt.Once, release) // then the next one kills
	release = func() {}
	w.kill(s, worker, ended)
	if number, ok := another.(syscall.Signal); ok {
		return interrupt.Error{Signal: number}
	}
	return nil
}

// anotherSignal waits for a signal after the first, or until the work has ended.
func anotherSignal(signals <-chan os.Signal, ended <-chan error) (os.Signal, error) {
	// What came until now was the same interruption.
	select {
	case <-signals:
	default:
	}

	select {
	case err := <-ended:
		return nil, err
	case another := <-signals:
		return another, nil
	}
}

// lastRequests is how long pq waits, once the commands should have ended, for the answers to the
// requests that give their items back.
const lastRequests = time.Second

// kill ends the commands, and waits for that. Items that it cannot give back come back when their
// leases are over.
func (w *work) kill(s *session, worker *client.Worker, ended <-chan error) {
	worker.Stop()
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
