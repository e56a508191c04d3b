package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

func newResult(a *app) *cobra.Command {
	q := &queue{app: a}
	var wait time.Duration
	cmd := q.command(&cobra.Command{
		Use:        "result QUEUE ID",
		SuggestFor: []string{"outcome", "status", "await"},
		Short:      "Print what a job has returned, or wait for it",
		Long: `Print what the job with this id returned, if it is done and kept, because its
push or the setting keep of its queue said so. The exit code is 0 if it is done,
1 if it became a dead letter, 3 if there is no such job, or nothing is kept of
it, and 4 if it is not over yet.`,
		Example: `  pq result jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --wait 30s
  pq result jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json`,
	}, func(args []string) error {
		if err := flags.CheckWait("wait", wait); err != nil {
			return err
		}
		s, err := q.open(q.cmd.Context())
		if err != nil {
			return err
		}
		defer s.nc.Close()
		return s.printResult(args[0], wait)
	})
	flags.Duration(cmd.Flags(), &wait, "wait", 0, "wait up to `DURATION`; else not at all")
	q.addJSON("print all that is known of the job, as JSON")
	return cmd
}

// notOver is the error for a job that is not over yet.
type notOver string

func (e notOver) Error() string { return string(e) }

// printResult waits until a job is over, but no longer than a time, and prints what it returned, or
// with --json all that is known. The error says what has become of a job that is not done.
func (s *session) printResult(id string, wait time.Duration) error {
	q, ctx := s.of, s.of.cmd.Context()
	r, err := s.queue.Result(ctx, id, client.Wait(wait))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: job %s goes on", context.Cause(ctx), id)
	case errors.Is(err, client.ErrNotFound):
		return notFound(cmp.Or(s.suggest(ctx, notKept), fmt.Sprintf(noResult, q.name)))
	case err != nil:
		return s.explain(err, "")
	}

	it := newOutcome(q, &r)
	if q.json {
		err = json.NewEncoder(q.cmd.OutOrStdout()).Encode(it)
	} else if r.State == client.Done {
		err = q.printItem(&item{bytes: r.Value}, true)
	}

	if r.State != client.Done {
		text := fmt.Sprintf("job %s is not over: it is %s", r.ID, it.standing())
		if r.State == client.Delayed {
			text += ", and is due in " + terminal.Short(time.Until(r.Due))
		}
		if r.Join > 0 {
			text += " at the latest"
		}
		if r.Reason != "" {
			text += "; its last failure: " + r.Reason
		}
		err = cmp.Or(err, r.Err(), error(notOver(text)))
	}
	return err
}

// noResult explains that nothing is known of a job, in the queue that follows.
const noResult = "no job with this id is in the queue, or kept: the id is misspelt; or it was " +
	"popped, removed or has expired; or it is done, and was not kept, or is not kept any " +
	"more (pq push --keep 1h, pq config %s keep=1h)"

// newOutcome returns a job as --json prints it.
func newOutcome(q *queue, r *client.JobResult) *item {
	it := newItem(q, &client.Item{ItemInfo: r.ItemInfo})
	it.Value, it.State, it.Deliveries = nil, r.State, r.Deliveries
	it.Holder, it.Reason = r.Holder, r.Reason
	it.addTimes(r.LeasedAt, r.FinishedAt)
	if r.HasResult {
		it.addResult(r.Value, r.ContentType)
	}
	it.Progress = string(r.Progress)
	return it
}

// addResult adds what a job returned.
func (it *item) addResult(value []byte, contentType string) {
	if it.ContentType = contentType; utf8.Valid(value) {
		text := string(value)
		it.Result = &text
	} else {
		it.ResultBase64 = value
	}
}
