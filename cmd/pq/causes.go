package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// countCauses counts the dead letters of queues by cause. There is a note if it stops early.
func countCauses(
	ctx context.Context, s *session, cmd *cobra.Command, queues []*queue, o client.ItemsOptions, c *target.Causes,
) error {
	var bar *terminal.Progress
	if stderr := cmd.ErrOrStderr(); terminal.Is(stderr) {
		bar = terminal.NewProgress(stderr, -1)
		defer bar.Clear()
	}

	scanned := int64(0)
	for i, q := range queues {
		ask := s.pager(ctx, target.New(s.client, q.fifo, q.name))
		more, err := c.Walk(q.fifo, q.name, o, func(o client.ItemsOptions) (client.ItemsPage, error) {
			page, err := ask(o)
			scanned += page.Scanned
			bar.Show(0, fmt.Sprintf("%s looked at, %s found", items(scanned, ""), terminal.Grouped(int64(c.Letters))))
			return page, err
		})
		if err != nil {
			return err
		}
		if !more {
			bar.Clear()
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pq: stopped after the first %s dead letters, in %s: %s not looked at\n",
				terminal.Grouped(target.MaxLetters), q.name, terminal.Plural(len(queues)-i-1, "other queue"))
			return nil
		}
	}
	return nil
}

// listCauses prints the causes of the dead letters of the queue that is named, or of all.
func (b *browsing) listCauses(ctx context.Context, s *session) error {
	queues, err := b.deadLetterQueues(ctx, s)
	if err != nil {
		return err
	}
	var causes target.Causes
	if err := countCauses(ctx, s, b.cmd, queues, b.options, &causes); err != nil {
		return err
	}

	out := b.cmd.OutOrStdout()
	for _, c := range causes.List() {
		line := causeLine{
			Queue: c.Queue, Home: c.Home, Cause: c.Text, Count: len(c.IDs),
			Newest: timeText(c.Newest), Oldest: timeText(c.Oldest), ID: c.ExampleID, Error: c.Example,
		}
		if err := line.print(out, c, b.json); err != nil {
			return err
		}
	}
	if causes.NoRoom > 0 {
		_, _ = fmt.Fprintf(b.cmd.ErrOrStderr(), "pq: %s of other causes: this list has %s\n",
			terminal.Plural(causes.NoRoom, "dead letter"), terminal.Plural(target.MaxCauses, "cause"))
	}
	if causes.Letters == 0 {
		b.noteNoLetters(ctx, s)
	}
	return nil
}

// causeLine is a cause as --json prints it.
type causeLine struct {
	Queue  string `json:"queue"`
	Home   string `json:"home,omitempty"` // none for several
	Cause  string `json:"cause"`
	Count  int    `json:"count"`
	Newest string `json:"newest"`
	Oldest string `json:"oldest"`
	ID     string `json:"id"` // of the newest, with its error
	Error  string `json:"error"`
}

func (l *causeLine) print(out io.Writer, c *target.Cause, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(l)
	}
	width := terminal.Width(out)
	if width == 0 {
		_, err := fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			l.Count, l.Queue, cmp.Or(l.Home, "-"), cmp.Or(l.Newest, "-"), cmp.Or(l.Oldest, "-"), l.ID, l.Cause)
		return err
	}

	// The cause is not cut: it is what to give to --error.
	title := fmt.Sprintf("%6s  %s, newest %s, oldest %s", terminal.Grouped(int64(l.Count)), l.Queue,
		terminal.Short(time.Since(c.Newest)), terminal.Short(time.Since(c.Oldest)))
	text := terminal.Clip(title, width) + "\n        " + l.Cause + "\n"
	if l.Error != l.Cause {
		text += terminal.Clip("        "+l.ID+": "+terminal.Plain(l.Error), width) + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// redriveCause sends the dead letters back that died of an error.
func (m *bulk) redriveCause(text string) error {
	if err := m.mayAsk(); err != nil {
		return err
	}
	causes := target.Causes{Error: text}
	_, err := ask(&m.queue, "", func(ctx context.Context, s *session) (none struct{}, err error) {
		err = countCauses(ctx, s, m.cmd, []*queue{&m.queue}, client.ItemsOptions{}, &causes)
		if err == nil && len(causes.Matching) == 0 {
			err = m.noSuchCause(ctx, s, &causes)
		}
		return none, err
	})
	if err != nil {
		return err
	}

	ids, failed, last := causes.Matching, 0, error(nil)
	all := len(ids)
	m.question = func(*client.QueueInfo) (string, int64) {
		return fmt.Sprintf("Send %s of %s back?", terminal.Plural(all, "dead letter"), m.name), int64(all)
	}
	m.part = func(ctx context.Context, s *session, _ int64) (n int64, more bool, err error) {
		part := ids[:min(len(ids), target.MaxIDs(s.nc.MaxPayload()))]
		results, err := s.queue.RedriveItems(ctx, part)
		if err != nil {
			return 0, false, err
		}
		results, again := target.WithoutRoom(results)
		ids = append(again, ids[len(part):]...)
		for _, r := range results {
			if err := r.Err(); err != nil {
				failed, last = failed+1, err
			} else {
				n++
			}
		}

		if len(ids) == 0 && failed > 0 {
			err = fmt.Errorf("%d of %d dead letters were not sent back: %w", failed, all, last)
		}
		return n, len(ids) > 0, err
	}
	return m.run(nil)
}

// noLetters says that a queue has no dead letters, and where its own are.
func (m *bulk) noLetters(ctx context.Context, s *session) string {
	text := m.name + " has no dead letters"
	if set, err := s.queue.Settings(ctx); err == nil {
		text += fmt.Sprintf(": what dies in it goes to %s", set.DeadLetterQueue(m.name))
	}
	return text
}

// noSuchCause names the causes there are.
func (m *bulk) noSuchCause(ctx context.Context, s *session, causes *target.Causes) error {
	const shown = 10
	list := causes.List()
	if len(list) == 0 {
		return notFound(cmp.Or(s.suggest(ctx), m.noLetters(ctx, s)))
	}

	text := fmt.Sprintf("no dead letter of %s has this error. These are there:", m.name)
	for _, c := range list[:min(len(list), shown)] {
		text += fmt.Sprintf("\n%6d  %s", len(c.IDs), c.Text)
	}
	if more := len(list) - shown; more > 0 {
		text += fmt.Sprintf("\nand %d more: pq dead --by cause lists them", more)
	}
	return notFound(text)
}

// checkBy returns the mistakes in the flags that choose between letters and causes.
func (b *browsing) checkBy(by string) error {
	switch {
	case by != "" && by != "cause":
		return exit.UsageError{Err: fmt.Errorf("--by is %q: want cause", by)}
	case by != "" && (b.all || b.cmd.Flags().Changed("limit")):
		return exit.UsageError{Err: errors.New("--limit and --all are for a list of dead letters: leave out one of them or --by")}
	case by != "" && b.died != "":
		return exit.UsageError{Err: errors.New("--error and --by exclude each other: leave out one")}
	}
	return nil
}
