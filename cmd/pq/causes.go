package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// listCauses prints the causes of the dead letters of the queue that is named, or of all, and tells
// people if it stops early.
func (b *browsing) listCauses(ctx context.Context, s *session) error {
	queues, err := b.deadLetterQueues(ctx, s)
	if err != nil {
		return err
	}

	causes := target.Causes{After: b.after}
	defer b.bar.Clear()
	for i, q := range queues {
		more, err := b.addCauses(ctx, s, q, &causes)
		if err != nil {
			return err
		}
		if !more {
			b.bar.Clear()
			b.say("stopped in %s, after %s, which is the most; %s not looked at", q.name,
				terminal.Plural(causes.Letters, "dead letter"),
				terminal.Plural(len(queues)-i-1, "other queue"))
			break
		}
	}

	b.bar.Clear()
	b.noteNoLetters(ctx, s, int64(causes.Letters))

	out := b.cmd.OutOrStdout()
	if b.json {
		return encodeLines(out, causes.List())
	}

	if causes.Unlisted > 0 {
		b.say("not listed: %s of other causes, because a list has at most %s",
			terminal.Plural(causes.Unlisted, "dead letter"), terminal.Grouped(target.MaxCauses))
	}
	width := terminal.Width(out)
	for _, c := range causes.List() {
		if _, err := io.WriteString(out, terminal.Lines(causeText(c, width))); err != nil {
			return err
		}
	}

	return nil
}

// addCauses adds the dead letters in a queue, and reports whether there is room for more.
func (b *browsing) addCauses(
	ctx context.Context, s *session, q *queue, causes *target.Causes,
) (more bool, err error) {
	o := b.options
	o.Limit, o.ValueBytes = subjects.MaxItems, client.NoValues
	items := target.Queue(s.client, q.fifo, q.name).Items
	for page, err := range target.Pages(ctx, o, items) {
		if err != nil {
			return false, err
		}
		before := causes.Letters
		more = causes.Add(q.fifo, q.name, page.Items)
		b.noteProgress(page.Scanned, causes.Letters-before)
		if !more {
			break
		}
	}
	return more, nil
}

// causeText returns what there is to say about a cause: for people some lines, for programs, whose
// width is 0, one with tabs.
func causeText(c *target.Cause, width int) string {
	if width == 0 {
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Count, c.Queue, cmp.Or(c.Home, "-"),
			cmp.Or(timeText(c.Newest), "-"), cmp.Or(timeText(c.Oldest), "-"), c.ExampleID, c.Text)
	}

	// The cause is not cut: it is what to give to --error.
	text := fmt.Sprintf("%6s  %s, newest %s, oldest %s\n        %s\n",
		terminal.Grouped(int64(c.Count)), c.Queue,
		terminal.Short(time.Since(c.Newest)), terminal.Short(time.Since(c.Oldest)), c.Text)
	if c.Example != c.Text {
		text += terminal.Clip("        "+c.ExampleID+": "+terminal.Plain(c.Example), width) + "\n"
	}

	return text
}

// redriveCause sends the dead letters back that died of an error, up to most.
func (m *bulk) redriveCause(text string, most int) error {
	if err := m.mayAsk(); err != nil {
		return err
	}

	var ids []string
	b := &browsing{queue: m.queue, all: true,
		options: client.ItemsOptions{ValueBytes: client.NoValues}}
	b.json = true
	err := b.run(func(ctx context.Context, s *session) error {
		_, err := b.walk(ctx, s, &b.queue, func(it *client.StoredItem) (string, bool) {
			d := target.DeadLetter(it)
			if d != nil && target.DiedOf(d, text) && len(ids) < most {
				// By its place, so that a job that dies again meanwhile stays.
				ids = append(ids, cmp.Or(it.Place, it.ID))
			}
			return "", false
		})
		if err == nil && len(ids) == 0 {
			return notFound(cmp.Or(s.suggest(ctx, ""), "no dead letter of "+m.name+
				" has this error: pq dead --by cause lists the causes there are"))
		}
		return err
	})
	if err == nil && !m.yes {
		n := terminal.Plural(len(ids), "dead letter")
		err = confirm(m.cmd, fmt.Sprintf("Send %s of %s back?", n, m.name))
	}

	if err != nil {
		return err
	}

	return m.redriveIDs(ids, true)
}

// redriveIDs sends dead letters back, by the queue that they are in or the one that they died in. A
// place is one in the former.
func (m *bulk) redriveIDs(ids []string, byPlace bool) error {
	e := &edit{
		queue:     &m.queue,
		done:      "sent back",
		do:        (*client.Queue).RedriveItems,
		elsewhere: redriveBuried,
	}
	if byPlace {
		e.do, e.elsewhere = (*client.Queue).RedriveItemsAt, nil
	}
	return e.run(ids)
}

// redriveBuried sends a job of the command's queue back from the one that its dead letters are in.
func redriveBuried(
	ctx context.Context, s *session, missing client.ItemResult,
) client.ItemResult {
	it, _, err := s.queue.Get(ctx, missing.ID)
	if err != nil || it.FoundIn == "" {
		return missing
	}

	// By its place, so that a job that dies again meanwhile stays.
	place := cmp.Or(it.Place, it.ID)
	buried := target.Queue(s.client, s.of.fifo, it.FoundIn)
	results, err := buried.RedriveItemsAt(ctx, []string{place})
	var reply *client.Error
	switch {
	case err == nil:
		return results[0]
	case errors.As(err, &reply):
		missing.Failure = subjects.Failure{Code: reply.Code, Reason: reply.Reason, Text: reply.Text}
	}
	return missing
}

// checkBy returns the mistakes in the flags that choose between letters and causes.
func (b *browsing) checkBy(by string) error {
	switch {
	case by != "" && by != "cause":
		return exit.Usagef("--by is %q: want cause", by)
	case by != "" && (b.all || b.died != "" || b.cmd.Flags().Changed("limit")):
		return exit.Usagef("--by counts all dead letters: leave out --by, " +
			"or leave out --limit, --all and --error")
	}
	return nil
}
