package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/child"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// endCommand is how long a command has to end after a signal.
const endCommand = 5 * time.Second

// do returns the Work that runs the command.
func (w *work) do(s *session) client.Work {
	return func(ctx context.Context, job *client.Job) error {
		runtime.LockOSThread() // Linux kills the command when the thread ends that has started it
		defer runtime.UnlockOSThread()

		c := exec.CommandContext(ctx, w.program[0], w.program[1:]...)
		c.Stdin, c.Stdout = bytes.NewReader(job.Value), w.cmd.OutOrStdout()
		c.Env = slices.DeleteFunc(os.Environ(), ofSomeItems.MatchString)
		c.Env = append(c.Env, environment(s.of, job)...)
		c.WaitDelay = endCommand
		killRest := child.Isolate(c)
		said, printed, err := w.outputs(c, job)
		defer said.End()
		defer printed.End()
		if err != nil {
			return w.notStarted(ctx, err)
		}
		endProgress, err := w.progress(ctx, c, job)
		if err != nil {
			return w.notStarted(ctx, err)
		}
		defer endProgress()

		err = c.Start()
		// Too long are the headers of this item.
		if err != nil && ctx.Err() == nil && !errors.Is(err, syscall.E2BIG) {
			return w.notStarted(ctx, err)
		}
		if err == nil {
			err = c.Wait()
		}

		killRest()
		said.End()
		printed.End()
		var exit *exec.ExitError
		switch {
		case err == nil, errors.Is(err, exec.ErrWaitDelay):
			// With ErrWaitDelay it has ended well, but left a process behind.
			w.setResult(job, printed)
			return nil
		case ctx.Err() != nil && context.Cause(ctx) != client.ErrTimedOut:
			return context.Cause(ctx)
		case terminal.NoReader(w.cmd.OutOrStdout(), false): // which is not the item's fault
			<-w.stopped
			return client.Snooze(0)
		case errors.As(err, &exit) && slices.Contains(w.dropOn, exit.ExitCode()):
			return client.Drop(w.reason(err, said, maxTermReason))
		default:
			return errors.New(w.reason(err, said, maxNakReason))
		}
	}
}

// maxResult is how long a result can be, as bridges have it by default.
const maxResult = 64 << 10

// outputs makes pipes of what a command says and, if its job is kept, of what it prints; else
// printed is nil. Also after an error, both have to be ended.
func (w *work) outputs(c *exec.Cmd, job *client.Job) (said, printed *child.Output, err error) {
	if said, err = child.NewStderr(c, w.cmd.ErrOrStderr()); err != nil {
		return nil, nil, err
	}
	if job.Keep > 0 || w.keeps {
		printed, err = child.NewStdout(c, w.cmd.OutOrStdout(), maxResult+1)
	}
	return said, printed, err
}

// setResult makes what a command has printed the result of its job.
func (w *work) setResult(job *client.Job, printed *child.Output) {
	if printed == nil {
		return
	}
	switch value := printed.Kept(); {
	case len(value) > maxResult:
		w.log.Warn("the output of a job is too large: it is done without a result", "queue",
			job.Queue, "id", job.ID, "most", maxResult)
	case len(value) > 0:
		job.SetResult(value, "")
	}
}

// Longest reasons that the bridge keeps, with room for what the client puts before them.
const (
	maxTermReason = 256
	maxNakReason  = 1000
)

// reason says why a command failed: how it ended, and with which words, in at most n bytes.
func (w *work) reason(err error, said *child.Output, n int) string {
	text := fmt.Sprintf("%s: %v", filepath.Base(w.program[0]), err)
	if last := said.Tail(n - len(text) - len(": ")); last != "" {
		text += ": " + last
	}
	return text
}

// startAgain is the pause after a command could not be started.
const startAgain = time.Second

// notStarted gives an item back, later and uncounted, because it is not the item's fault that the
// command cannot be started: somebody may be replacing it.
func (w *work) notStarted(ctx context.Context, err error) error {
	w.say("cannot start the command, trying again in %v: %v", startAgain, err)
	select {
	case <-ctx.Done():
	case <-time.After(startAgain):
	}
	return client.Snooze(0)
}

// ofSomeItems matches what environment sets for some items only. Those in pq work's own environment
// are of the item of an outer pq work.
var ofSomeItems = regexp.MustCompile(`^PQ_(HEADER_|DEAD_|PRIORITY=|GROUP=|JOINE[DR]=)`)

// environment returns what a command is told about its item.
func environment(q *queue, job *client.Job) []string {
	values := []string{"PQ_QUEUE=" + job.Queue, "PQ_ID=" + job.ID,
		"PQ_DELIVERIES=" + strconv.FormatInt(job.Deliveries, 10),
		"PQ_PUSHED_AT=" + timeText(job.PushedAt)}

	if hasPriority(q, &job.Item) {
		values = append(values, "PQ_PRIORITY="+strconv.FormatInt(job.Priority, 10))
	}

	if job.Group != "" {
		values = append(values, "PQ_GROUP="+withoutNUL(job.Group))
	}

	if job.Joiner != nil {
		values = append(values, "PQ_JOINER="+job.Joiner.String())
	}

	if job.Joined != nil {
		values = append(values, "PQ_JOINED="+job.Joined.String())
	}

	if d := job.DeadLetter; d != nil {
		values = append(values, "PQ_DEAD_QUEUE="+d.Queue, "PQ_DEAD_REASON="+d.Reason,
			"PQ_DEAD_ERROR="+d.Error,
			"PQ_DEAD_DELIVERIES="+strconv.FormatInt(d.Deliveries, 10), "PQ_DEAD_AT="+timeText(d.At))
	}

	for name, texts := range job.Headers {
		values = append(values,
			"PQ_HEADER_"+variableName(name)+"="+withoutNUL(strings.Join(texts, "\n")))
	}

	return values
}

// withoutNUL returns a text without what no environment can have.
func withoutNUL(text string) string { return strings.ReplaceAll(text, "\x00", "") }

// variableName returns a header's name as it stands in the environment.
func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(header))
}
