package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// bulk is the command line of pq purge or pq redrive, which do something with many items.
type bulk struct {
	queue
	yes bool

	member  string // of the reply, for the number of items
	done    string // what was done, before the name of the queue
	unknown string // what an unknown outcome may mean
	// question asks whether to go on, with as many items as it may be about.
	question func(*client.QueueInfo) (string, int64)
	// nothing, if not "", says why nothing was done with a queue, whose name it follows.
	nothing string
	// part makes a request, after others that did something with that many items.
	part func(ctx context.Context, s *session, before int64) (n int64, more bool, err error)
}

func (m *bulk) command(cmd *cobra.Command, run func(args []string) error) *cobra.Command {
	m.queue.command(cmd, run)
	cmd.Flags().BoolVar(&m.yes, "yes", false, "do not ask")
	m.addJSON(protocolJSON)
	return cmd
}

func newPurge(a *app) *cobra.Command {
	var state client.State
	m := &bulk{
		queue:  queue{app: a},
		member: "purged", done: "removed from", unknown: "some items may have been removed",
		part: func(ctx context.Context, s *session, _ int64) (int64, bool, error) {
			return s.queue.PurgePart(ctx, state)
		},
	}
	m.question = func(i *client.QueueInfo) (string, int64) {
		n := target.Count(i, state)
		what := items(n, string(state))
		if state == client.Done {
			what = terminal.Plural(n, "finished job")
		}
		return fmt.Sprintf("Remove %s of %s?", what, m.name), n
	}

	cmd := m.command(&cobra.Command{
		Use:        "purge QUEUE",
		SuggestFor: []string{"clear", "empty", "truncate"},
		Short:      "Remove all items of a queue",
		Long: `Remove all items of a queue, or those in one state, and print how many were
removed. Settings and, without --state done, finished jobs stay. On a terminal
it asks first; elsewhere it needs --yes.`,
		Example: `  pq purge jobs
  pq purge jobs --state delayed --yes`,
	}, m.run)
	addState(cmd, &state)
	return cmd
}

func newRedrive(a *app) *cobra.Command {
	var most int
	var text string
	var byPlace bool
	m := &bulk{
		queue:  queue{app: a},
		member: "redriven", done: "sent back from", unknown: "some items may have been sent back",
		nothing: "has no dead letters: pq dead lists those there are, by the queues they are in",
	}
	m.part = func(ctx context.Context, s *session, before int64) (int64, bool, error) {
		request := min(most-int(before), subjects.MaxRedrive)
		n, more, err := s.queue.RedrivePart(ctx, request)
		return n, (more || n == int64(request)) && before+n < int64(most), err
	}
	m.question = func(i *client.QueueInfo) (string, int64) {
		n := min(i.Ready, int64(most))
		return fmt.Sprintf("Send the dead letters among %s of %s back?", items(n, ""), m.name), n
	}

	cmd := m.command(&cobra.Command{
		Use:        "redrive QUEUE [ID...]",
		SuggestFor: []string{"retry", "rerun", "requeue", "replay"},
		Short:      "Send dead letters back, or run finished jobs again",
		Long: `Send dead letters back, or run finished jobs again. Without ids, all the dead
letters in a queue, such as jobs-dead, go back where they come from, and it
prints how many. On a terminal it asks first; elsewhere it needs --yes. --error
chooses those with an error, or with a cause as pq dead prints it. With ids, or
- for ids from standard input, it sends only those, or runs them again if they
are finished jobs, and does not ask: QUEUE may then be where they died.`,
		Example: `  pq redrive jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq redrive jobs-dead --max 10 --yes
  pq redrive jobs-dead --error "dial tcp *: i/o timeout"
  pq dead jobs --match acme --all | pq redrive jobs-dead -`,
	}, func(ids []string) error {
		limited := m.cmd.Flags().Changed("max")
		if !limited {
			most = math.MaxInt
		}
		switch {
		case byPlace && len(ids) == 0:
			return exit.Usagef("--by-place says what IDs are: want some, or leave it out")
		case len(ids) > 0 && (limited || text != ""):
			return exit.Usagef("ids say which to send back: leave out --max and --error")
		case len(ids) > 0:
			return m.redriveIDs(ids, byPlace)
		case most < 1:
			return flags.AtLeastOne("max", most)
		}

		m.noteElsewhere()
		if text != "" {
			return m.redriveCause(text, most)
		}
		return m.run(nil)
	})
	cmd.Flags().IntVar(&most, "max", 0, "send up to `N` back; else all")
	cmd.Flags().StringVar(&text, "error", "",
		"send those with the error or cause `TEXT`")
	addByPlace(cmd, &byPlace)
	return cmd
}

// noteElsewhere tells people who name a queue whose own dead letters are in another one.
func (m *bulk) noteElsewhere() {
	// For jobs-dead it would be of no use.
	if strings.HasSuffix(m.name, settings.DeadSuffix) {
		return
	}

	note := func(ctx context.Context, s *session) (none struct{}, err error) {
		info, err := s.queue.Info(ctx)
		if err != nil {
			return none, err
		}

		dead := info.Settings.DeadLetterQueue(m.name)
		letters, err := target.Queue(s.client, m.fifo, dead).Info(ctx)
		if err == nil && !isUnused(letters) {
			m.say("the dead letters of %s are in %s: pq redrive %[2]s", m.name, dead)
		}
		return none, err
	}
	_, _ = ask(&m.queue, "", note) // this user may not be allowed to ask
}

// mayAsk refuses to go on without --yes if there is nobody to ask.
func (m *bulk) mayAsk() error {
	interactive := terminal.Is(m.cmd.InOrStdin()) && terminal.Is(m.cmd.ErrOrStderr())
	if !m.yes && !interactive {
		return exit.Usagef("there is no terminal to ask on: add --yes")
	}
	return nil
}

// run asks the question, if there is anything to do, and does it.
func (m *bulk) run([]string) error {
	if err := m.mayAsk(); err != nil {
		return err
	}

	if !m.yes {
		info, err := ask(&m.queue, "",
			func(ctx context.Context, s *session) (*client.QueueInfo, error) {
				return s.queue.Info(ctx)
			})
		if err != nil {
			return err
		}
		if text, n := m.question(info); n > 0 {
			err = confirm(m.cmd, text)
		}
		if err != nil {
			return err
		}
	}

	n, err := ask(&m.queue, m.unknown, m.untilDone)
	done := fmt.Sprintf("%s %s %s", items(n, ""), m.done, m.name)
	switch {
	case err != nil && n > 0:
		return fmt.Errorf("%w; before that, %s", err, done)
	case err != nil:
		return err
	}

	return m.printCount(m.member, n, done)
}

// printCount prints how many items it was done to: in words for people, a number for programs, and
// with --json as a member.
func (m *bulk) printCount(member string, n int64, words string) error {
	text := fmt.Sprintln(n)
	if terminal.Is(m.cmd.OutOrStdout()) {
		text = words + "\n"
	}
	return m.print(reply{text, map[string]int64{member: n}})
}

// untilDone makes as many requests as it takes, with a progress bar on a terminal, and returns how
// many items that were. A signal ends it after a request.
func (m *bulk) untilDone(ctx context.Context, s *session) (n int64, err error) {
	bar := terminal.NewProgress(m.cmd.ErrOrStderr())
	defer bar.Clear()

	for more := true; more && err == nil; {
		var part int64
		part, more, err = m.part(ctx, s, n)
		n += part
		bar.Show(items(n, ""))
		if more && err == nil {
			err = context.Cause(m.cmd.Context())
		}
	}

	if err == nil && n == 0 && !s.noteUnused(ctx) && m.nothing != "" {
		m.say("%s %s", m.name, m.nothing)
	}

	return n, err
}

// errDeclined is the answer no.
var errDeclined = errors.New("nothing was done, because the answer was not yes")

// confirm asks somebody at the terminal.
func confirm(cmd *cobra.Command, question string) error {
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question); err != nil {
		return err
	}

	answer, err := interrupt.Await(cmd.Context(),
		func() (string, error) { return bufio.NewReader(cmd.InOrStdin()).ReadString('\n') })
	if cmd.Context().Err() != nil { // Ctrl-C ends the line, too
		err = context.Cause(cmd.Context())
	}

	if err != nil { // the cursor is behind the question
		_, _ = fmt.Fprintln(cmd.ErrOrStderr())
	}

	switch answer = strings.ToLower(strings.TrimSpace(answer)); {
	case err != nil && err != io.EOF:
		return fmt.Errorf("%w: nothing was changed", err)
	case answer == "y" || answer == "yes":
		return nil
	}

	return errDeclined
}
