package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

func newTrail(a *app) *cobra.Command {
	q := &queue{app: a}
	cmd := q.command(&cobra.Command{
		Use:        "trail QUEUE ID",
		SuggestFor: []string{"attempts", "chain", "why"},
		Short:      "Print what a job went through, and what came of it",
		Long: `Print the attempts of a job in all its lives: when and how each ended, how long
it took, who had the lease, and why it failed. Then print the chain that the job
is in, where one job pushed the next, and which of these is stuck. The setting
trail of a queue says how many attempts to keep; what finished jobs have pushed
is known while they are kept.`,
		Example: `  pq trail jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq trail jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json`,
	}, func(args []string) error {
		var self *target.Kin
		kept := int64(-1) // the setting trail, if it is known
		ofJob := func(ctx context.Context, s *session) (chain []*target.Kin, err error) {
			chain, self, err = s.chain(ctx, args[0])
			if err == nil && !q.json && len(self.Item.Attempts) == 0 {
				if now, failed := s.queue.Settings(ctx); failed == nil {
					kept = now.Trail
				}
			}
			return chain, err
		}
		chain, err := ask(q, "", ofJob)
		if err != nil {
			return err
		}
		return q.printTrail(chain, self, kept)
	})
	q.addJSON("print a line of JSON for each job of the chain")
	return cmd
}

// chain returns the chain of a job.
func (s *session) chain(
	ctx context.Context, id string,
) (all []*target.Kin, self *target.Kin, err error) {
	all, self = target.Chain(trail.Job{Queue: s.of.name, ID: id},
		func(job trail.Job) (in string, it client.StoredItem, err error) {
			it, err = s.job(ctx, job)
			if !errors.Is(err, client.ErrNotFound) {
				return job.Queue, it, err
			}
			info, failed := target.Queue(s.client, s.of.fifo, job.Queue).Info(ctx)
			if failed != nil {
				return job.Queue, it, failed
			}
			job.Queue = info.Settings.DeadLetterQueue(job.Queue)
			it, err = s.job(ctx, job)
			return job.Queue, it, err
		})
	if refused := malformed([]string{id}, self.Err); refused != nil {
		return nil, nil, refused
	}
	return all, self, cmp.Or(context.Cause(ctx), s.absent(ctx, self.Err))
}

// job returns a job without its value.
func (s *session) job(ctx context.Context, job trail.Job) (it client.StoredItem, err error) {
	q := target.Queue(s.client, s.of.fifo, job.Queue)
	list, err := q.GetItems(ctx, []string{job.ID}, client.NoValues)
	if err == nil && len(list) == 1 {
		return list[0], client.ItemResult{Failure: list[0].Failure}.Err()
	}
	return it, cmp.Or(err, error(client.ErrBadReply))
}

// kin is a job of a chain as --json prints it.
type kin struct {
	Depth       int    `json:"depth"`
	FirstPushed string `json:"first_pushed_at,omitempty"`
	*item
}

func (q *queue) printTrail(chain []*target.Kin, self *target.Kin, kept int64) error {
	if !q.json {
		return q.print(reply{text: trailText(chain, self, kept, time.Now())})
	}

	lines := make([]kin, len(chain))
	for i, k := range chain {
		of := &queue{app: q.app, name: cmp.Or(k.In, k.Queue), fifo: q.fifo}
		k.Item.ID = k.ID // also of one that is gone
		it := newStored(of, &k.Item)
		it.Value, it.ValueCut = nil, false
		if it.Code == 0 && k.Err != nil {
			it.Text = k.Err.Error()
		}
		lines[i] = kin{k.Depth, timeText(target.FirstPush(k.ID)), it}
	}
	return encodeLines(q.cmd.OutOrStdout(), lines)
}

// trailText describes the attempts of a job, and its chain. kept is the setting trail of its queue,
// -1 if that is not known.
func trailText(chain []*target.Kin, self *target.Kin, kept int64, now time.Time) string {
	text := infoLines("job", self.String())
	if first := target.FirstPush(self.ID); !first.IsZero() {
		text += infoLines("first push", fmt.Sprintf("%s, %s ago", first.Format(time.DateTime),
			terminal.Short(now.Sub(first))))
	}
	attempts := attemptLines(self.Item.Attempts)
	if len(attempts) == 0 {
		attempts = []string{noAttempts(self, kept)}
	}
	text += infoLines("attempts", attempts...) + infoLines("now", self.Standing(now))
	if len(chain) == 1 && self.More == 0 {
		return text +
			infoLines("chain", "no job is known that has pushed it, or that it has pushed")
	}

	top := chain[0]
	var lines, stuck []string
	if parent := top.Item.Parent(); parent != nil {
		lines = append(lines, "  "+parent.String()+": not looked at")
	}
	for _, k := range chain {
		mark := "  "
		if k == self {
			mark = "> "
		}
		line := k.String() + ": " + k.Standing(now)
		indent := mark + strings.Repeat("  ", k.Depth-top.Depth)
		lines = append(lines, indent+line)
		if k.More > 0 {
			lines = append(lines, fmt.Sprintf("%s  %d more, not looked at", indent, k.More))
		}
		if k.IsOpen() {
			stuck = append(stuck, line)
		}
	}
	if len(stuck) == 0 {
		stuck = []string{"none of these"}
	}
	return text + infoLines("chain", lines...) + infoLines("stuck", stuck...)
}

// noAttempts says why no attempt of a job is kept, and how to keep those to come.
func noAttempts(self *target.Kin, kept int64) string {
	ended := self.Item.Deliveries
	if self.Item.State == client.Leased {
		ended--
	}

	text := "none has ended"
	if ended > 0 {
		text = terminal.Plural(ended, "attempt") + " not kept"
	}
	if kept == 0 {
		text += fmt.Sprintf(": pq config %s trail=8 keeps those to come", self.Queue)
	}
	return text
}

// attemptLines describes attempts, and says which are not kept between them.
func attemptLines(all []trail.Attempt) (lines []string) {
	missing := func(of string, from, to int64) {
		if from <= to {
			lines = append(lines, fmt.Sprintf("%s %d to %d: not kept", of, from, to))
		}
	}
	life, number := int64(0), int64(0)
	for i := range all {
		a := &all[i]
		if a.Life != life {
			missing("lives", life+1, a.Life-1)
			life, number = a.Life, 0
		}
		missing(fmt.Sprintf("life %d,", a.Life), number+1, a.Number-1)
		number = a.Number

		line := fmt.Sprintf("life %d, %d: %s at %s", a.Life, a.Number, a.How,
			a.To.UTC().Format(time.DateTime))
		if length := target.Length(a); length != nil {
			line += " after " + terminal.InWords(*length)
		}
		if a.Holder != "" {
			line += " by " + a.Holder
		}
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		lines = append(lines, line)
	}
	return lines
}
