package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

func newDead(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a}}
	var by string
	cmd := b.command(&cobra.Command{
		Use: "dead [QUEUE]",
		SuggestFor: []string{"dlq", "letters", "dead-letters", "deadletters", "dead-letter",
			"deadletter", "failed", "failures"},
		Short: "List dead letters, of one queue or of all",
		Long: `List the dead letters of a queue, or of all: the id in the dead-letter queue,
how long they have been there, why, the last error, and the start of the value.
With --by cause, count those whose errors differ only in numbers, ids and
addresses. pq redrive sends dead letters back, pq rm removes them. Jobs that
failed and run again are not here; pq ls counts failures.`,
		Example: `  pq dead --by cause --since 1h
  pq dead jobs --error "dial tcp *: i/o timeout" --all | pq rm jobs-dead -`,
		PreRunE: func(*cobra.Command, []string) error {
			if err := flags.CheckWait("since", b.since); err != nil {
				return err
			}
			if b.since > 0 {
				b.after = time.Now().Add(-b.since)
			}
			return b.checkBy(by)
		},
	}, func([]string) error {
		if by != "" {
			return b.run(b.listCauses)
		}
		return b.run(b.listDead)
	})
	b.addFilters(cmd)
	cmd.Flags().StringVar(&by, "by", "", "count by `WHAT`: cause")
	flags.Completes(cmd, "by", "cause")
	cmd.Flags().StringVar(&b.died, "error", "",
		"only those with the error or cause `TEXT`")
	flags.Duration(cmd.Flags(), &b.since, "since", 0, "only those of the last `DURATION`")
	return cmd
}

// listDead prints the dead letters of the queue that is named, or of all.
func (b *browsing) listDead(ctx context.Context, s *session) error {
	queues, err := b.deadLetterQueues(ctx, s)
	if err != nil {
		return err
	}

	width := terminal.Width(b.cmd.OutOrStdout())
	for i, q := range queues {
		heading := ""
		if width > 0 {
			heading = q.name + ":\n" // which has these ids
		}
		after, err := b.walk(ctx, s, q, func(it *client.StoredItem) (string, bool) {
			row := b.deadRow(q, it, width)
			if row != "" {
				row, heading = heading+row, ""
			}
			return row, row != ""
		})
		if err != nil {
			return err
		}
		if after != "" || b.left == 0 && i < len(queues)-1 {
			b.noteMore("--all prints them")
			return nil
		}
	}

	b.noteNoLetters(ctx, s, b.found)
	return nil
}

// noteNoLetters tells people who named a queue or an error if nothing was found, and why if the
// name is wrong: it may be the dead-letter queue's own.
func (b *browsing) noteNoLetters(ctx context.Context, s *session, found int64) {
	home, isDead := strings.CutSuffix(b.name, settings.DeadSuffix)
	switch {
	case found > 0:
	case b.since > 0:
		b.say("no such dead letter is of the last %v: pq dead without --since lists all", b.since)
	case b.name == "" && b.died == "" && !terminal.Is(b.cmd.ErrOrStderr()):
	case b.name == "" && b.died == "" && b.options.Match == "" && len(b.headers) == 0:
		b.say("no queue has dead letters")
	case b.name == "" && b.died == "":
		b.say("no dead letter matches: %s looked at", items(b.scanned, ""))
	case b.name == "":
		b.say("no dead letter has this error or cause: pq dead --by cause lists those there are")
	case isDead:
		b.say("%s holds the dead letters of %s: pq dead %s lists them", b.name, home, home)
	case s.noteUnused(ctx):
	case b.died == "" && b.options.Match == "" && len(b.headers) == 0:
		b.say("%s has no dead letters: pq dead lists those of all queues", b.name)
	default:
		b.say("no such dead letters of %s: pq dead lists those of all queues", b.name)
	}
}

// deadLetterQueues returns the queue with the dead letters of the queue that is named, which are
// then the only ones to look for, or else those in use that are named like one, or by the settings
// of a queue.
func (b *browsing) deadLetterQueues(ctx context.Context, s *session) ([]*queue, error) {
	if b.name != "" {
		info, err := s.queue.Info(ctx)
		if err != nil {
			return nil, err
		}
		b.options.Headers[subjects.HeaderDeadQueue] = b.name
		return []*queue{{fifo: b.fifo, name: info.Settings.DeadLetterQueue(b.name)}}, nil
	}

	list, err := b.listed(ctx, s)
	if err != nil {
		return nil, err
	}

	infos, err := s.infos(ctx, list)
	if err != nil {
		return nil, err
	}

	chosen := map[queue]bool{}
	for i, q := range list {
		chosen[queue{fifo: q.isFIFO(), name: infos[i].Settings.DeadLetter}] = true
	}

	var queues []*queue
	for _, q := range list {
		named := queue{fifo: q.isFIFO(), name: q.Queue}
		if strings.HasSuffix(q.Queue, settings.DeadSuffix) || chosen[named] {
			queues = append(queues, &named)
		}
	}

	return queues, nil
}

// deadRow describes a dead letter, and returns "" for other items: for people some lines as wide as
// their terminal, for programs one with tabs.
func (b *browsing) deadRow(q *queue, it *client.StoredItem, width int) string {
	d := target.DeadLetter(it)
	isOld := d != nil && d.At.Before(b.after)
	if d == nil || isOld || b.died != "" && !target.DiedOf(d, b.died) {
		return ""
	}

	failure, value := terminal.Plain(d.Error), shown(it)
	if width == 0 {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", it.ID, q.name, d.Queue,
			terminal.Plain(d.Reason), failure, d.Deliveries, cmp.Or(timeText(d.At), "-"), value)
	}

	why := terminal.Plain((&deadLetter{Reason: d.Reason, Deliveries: d.Deliveries}).why())
	title := fmt.Sprintf("%s  %4s  %s: %s", it.ID, terminal.Short(time.Since(d.At)), d.Queue, why)
	lines := terminal.Clip(title, width) + "\n"
	for _, text := range []string{failure, value} {
		if text != "" {
			lines += terminal.Clip("    "+text, width) + "\n"
		}
	}

	return lines
}
