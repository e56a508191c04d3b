package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// many is the command line of pq purge or pq redrive, which do something with many items.
type many struct {
	queue
	yes, json bool
	state     string
	max       flags.Count
}

func (m *many) addFlags(cmd *cobra.Command) {
	m.queue.addFlags(cmd)
	cmd.Flags().BoolVar(&m.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&m.json, "json", false, "print JSON, as the protocol defines it")
}

func newPurge(a *app) *cobra.Command {
	m := &many{queue: queue{app: a, verb: subjects.Purge}}
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Remove all items of a queue",
		Long: `Remove all items of a queue, or those in one state, and print how many that
were. Settings stay. On a terminal it asks first; elsewhere it needs --yes.`,
		Example: `  pq purge jobs
  pq purge jobs --state delayed --yes`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			m.name = args[0]
			return m.purge(cmd)
		},
	}

	m.addFlags(cmd)
	cmd.Flags().StringVar(&m.state, "state", "", "only items that are ready, delayed or leased")
	return cmd
}

func (m *many) purge(cmd *cobra.Command) error {
	state := client.State(m.state)
	switch state {
	case "", client.Ready, client.Delayed, client.Leased:
	default:
		return exit.UsageError{Err: fmt.Errorf("--state is %q: want %s, %s or %s", m.state, client.Ready, client.Delayed, client.Leased)}
	}

	return m.run(cmd, "purged", "removed from "+m.name, "some items may have been removed",
		func(i *client.QueueInfo) (string, int64) {
			n := map[client.State]int64{
				"": i.Ready + i.Leased + i.Delayed, client.Ready: i.Ready, client.Leased: i.Leased, client.Delayed: i.Delayed,
			}[state]
			return fmt.Sprintf("Remove %s of %s?", items(n, m.state), m.name), n
		},
		func(ctx context.Context, s *session) (int64, error) { return s.queue.Purge(ctx, state) })
}

func newRedrive(a *app) *cobra.Command {
	m := &many{queue: queue{app: a, verb: subjects.Redrive}, max: 1000}
	cmd := &cobra.Command{
		Use:   "redrive QUEUE",
		Short: "Send dead letters back to their queues",
		Long: `Send the dead letters in a queue, such as jobs-dead, back to the queues that
they come from, and print how many that were. On a terminal it asks first;
elsewhere it needs --yes.`,
		Example: `  pq redrive jobs-dead
  pq redrive jobs-dead --max 10 --yes`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			m.name = args[0]
			return m.redrive(cmd)
		},
	}

	m.addFlags(cmd)
	cmd.Flags().Var(&m.max, "max", "send up to this `many`, 1,000 unless it says otherwise")
	flags.WithoutDefault(cmd.Flags(), "max")
	return cmd
}

func (m *many) redrive(cmd *cobra.Command) error {
	if m.max < 1 || m.max > subjects.MaxRedrive {
		return exit.UsageError{Err: fmt.Errorf("--max is %d: want at least 1, and at most %d", m.max, subjects.MaxRedrive)}
	}
	return m.run(cmd, "redriven", "sent back from "+m.name, "some items may have been sent back",
		func(i *client.QueueInfo) (string, int64) {
			n := min(i.Ready, int64(m.max))
			return fmt.Sprintf("Send the dead letters among %s of %s back?", items(n, ""), m.name), n
		},
		func(ctx context.Context, s *session) (int64, error) { return s.queue.Redrive(ctx, int(m.max)) })
}

// run asks the question, if there is somebody to ask and anything to do, and does it.
func (m *many) run(cmd *cobra.Command, member, done, unknown string, question func(*client.QueueInfo) (string, int64),
	do func(context.Context, *session) (int64, error),
) error {
	if err := m.check(false); err != nil {
		return err
	}
	interactive := terminal.Is(cmd.InOrStdin()) && terminal.Is(cmd.ErrOrStderr())
	if !m.yes && !interactive {
		return exit.UsageError{Err: errors.New("nobody can be asked, because this is no terminal: add --yes")}
	}
	if !m.yes {
		if err := m.confirm(cmd, question); err != nil {
			return err
		}
	}
	n, err := ask(cmd, &m.queue, unknown, func(ctx context.Context, s *session) (int64, error) {
		n, err := do(ctx, s)
		if err == nil && n == 0 {
			s.noteUnused(ctx, cmd, &m.queue)
		}
		return n, err
	})
	if err != nil {
		return err
	}
	if m.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]int64{member: n})
	}
	return printCount(cmd.OutOrStdout(), n, done)
}

// errDeclined is the answer no.
var errDeclined = errors.New("nothing was done, because the answer was not yes")

// confirm asks the question, if there is anything to do.
func (m *many) confirm(cmd *cobra.Command, question func(*client.QueueInfo) (string, int64)) error {
	q := m.queue
	q.verb = subjects.Info
	info, err := ask(cmd, &q, "", func(ctx context.Context, s *session) (*client.QueueInfo, error) { return s.queue.Info(ctx) })
	if err != nil {
		return err
	}

	text, n := question(info)
	if n == 0 {
		return nil
	}

	if m.verb == subjects.Redrive {
		if err := m.findDeadLetter(cmd); err != nil {
			return err
		}
	}
	return confirm(cmd, text)
}

// findDeadLetter returns an error if there is no dead letter at either end of the queue. Items that
// were pushed to a dead-letter queue may hide those between them, so it is not said to whoever
// wants no question.
func (m *many) findDeadLetter(cmd *cobra.Command) error {
	q := m.queue
	q.verb = subjects.PeekMin
	found, err := ask(cmd, &q, "", func(ctx context.Context, s *session) (bool, error) {
		for _, last := range []bool{false, !m.fifo} { // a FIFO queue has one end
			item, err := s.queue.PeekItem(ctx, last)
			if err != nil || item.DeadLetter != nil {
				return err == nil, err
			}
		}
		return false, nil
	})

	if err != nil || found { // also whoever may not peek gets the question
		return nil
	}
	return fmt.Errorf("nothing to redrive: there is no dead letter at the ends of %s; --yes looks at all its items", m.name)
}

// confirm asks somebody at the terminal.
func confirm(cmd *cobra.Command, question string) error {
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question); err != nil {
		return err
	}

	answer, err := interrupt.Await(cmd.Context(), func() (string, error) { return bufio.NewReader(cmd.InOrStdin()).ReadString('\n') })
	if err == nil && cmd.Context().Err() != nil { // Ctrl-C ends the line, too
		err = context.Cause(cmd.Context())
	}
	if err != nil { // the cursor is behind the question
		_, _ = fmt.Fprintln(cmd.ErrOrStderr())
	}
	if err != nil && err != io.EOF {
		return fmt.Errorf("%w: nothing was changed", err)
	}

	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}

// items names a number of items, of which all may be in a state: 1 item, 1,000 leased items.
func items(n int64, state string) string {
	noun := "items"
	if n == 1 {
		noun = "item"
	}
	if state != "" {
		noun = state + " " + noun
	}
	return terminal.Grouped(n) + " " + noun
}

// printCount prints how many items something was done with: for people a sentence, for programs the
// number.
func printCount(out io.Writer, n int64, done string) error {
	var err error
	if terminal.Is(out) {
		_, err = fmt.Fprintf(out, "%s %s\n", items(n, ""), done)
	} else {
		_, err = fmt.Fprintln(out, n)
	}
	return err
}
