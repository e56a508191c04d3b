package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// byIDs does something with items by the ids in the arguments, in requests for up to a thousand. do
// adds the result of each to counts, and returns those ids for which there was no room.
func (q *queue) byIDs(
	args []string, unknown string, counts *idResults,
	do func(context.Context, *session, []string) (again []string, err error),
) error {
	ids, err := idArguments(q.cmd, args)
	if err != nil {
		return err
	}

	counts.of, counts.all = q, len(ids)

	_, err = ask(q, unknown, func(ctx context.Context, s *session) (none struct{}, err error) {
		err = target.ByIDs(ids, s.nc.MaxPayload(), func(part []string) ([]string, error) {
			if err := context.Cause(q.cmd.Context()); err != nil {
				return nil, err
			}
			return do(ctx, s, part)
		})
		switch {
		case err == nil:
			err = counts.verdict(ctx, s)
		case counts.all > 1:
			err = fmt.Errorf("%w; %s before that: %d of %d items",
				err, counts.done, counts.succeeded, counts.all)
		}
		return none, err
	})
	return err
}

// malformed returns the error of a request for a single id that is malformed, nil for other errors.
func malformed(ids []string, err error) *client.Error {
	var reply *client.Error
	if len(ids) > 1 || !errors.Is(err, client.ErrBadRequest) || !errors.As(err, &reply) {
		return nil
	}
	text := strings.TrimPrefix(strings.TrimPrefix(reply.Text, "ids: "), "places: ")
	return &client.Error{Code: reply.Code, Text: strings.TrimPrefix(text, "element 0: ")}
}

// idResults counts the results of requests for items by their ids.
type idResults struct {
	of    *queue
	all   int    // how many there are
	done  string // what is done with one
	quiet bool   // somebody else says what failed

	succeeded, missing int
	last               error // of one that failed
}

// add counts a result, and says what failed if there are several.
func (r *idResults) add(id string, err error) {
	if err == nil {
		r.succeeded++
		return
	}

	if errors.Is(err, client.ErrNotFound) {
		r.missing++
		err = errNoItem
	}

	r.last = err
	if r.all > 1 && !r.quiet {
		// Without the quotes: it may be what no id has in it. The exit code says so too.
		quoted := strconv.Quote(id)
		r.of.say("%s: %v", quoted[1:len(quoted)-1], err)
	}
}

// verdict returns the error of the command.
func (r *idResults) verdict(ctx context.Context, s *session) error {
	failed := r.all - r.succeeded
	text := fmt.Sprintf("not %s: %d of %d items", r.done, failed, r.all)
	switch {
	case failed == 0:
		return nil
	case r.all == 1:
		return s.absent(ctx, r.last)
	case r.missing == failed:
		return notFound(text)
	}

	return errors.New(text)
}

// idArguments returns the ids in arguments, each once. For - it reads them from standard input,
// where they are the first words of the lines.
func idArguments(cmd *cobra.Command, args []string) (ids []string, err error) {
	if slices.Contains(args, "-") {
		if len(args) > 1 {
			return nil, exit.Usagef("- stands for the ids in standard input: leave out the others")
		}
		text, err := interrupt.Await(cmd.Context(),
			func() ([]byte, error) { return io.ReadAll(cmd.InOrStdin()) })
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}

		args = nil
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 0 {
				args = append(args, words[0])
			}
		}
	}

	seen := map[string]bool{}
	for _, id := range args {
		if !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}

	return ids, nil
}

// edit is the command line of what changes items by their ids.
type edit struct {
	*queue
	done string // what is done with an item
	do   func(*client.Queue, context.Context, []string) ([]client.ItemResult, error)
	// elsewhere, if it is not nil, edits an item that is not in the queue.
	elsewhere func(ctx context.Context, s *session, missing client.ItemResult) client.ItemResult
}

// addByPlace adds the flag that says that the arguments are places.
func addByPlace(cmd *cobra.Command, byPlace *bool) {
	cmd.Flags().BoolVar(byPlace, "by-place", false,
		"the IDs are places: what has left its place since stays")
}

func (e *edit) command(cmd *cobra.Command, run func(args []string) error) *cobra.Command {
	e.queue.command(cmd, run)
	e.addJSON("print a line of JSON for each item")
	return cmd
}

// run edits the items, and prints the results as JSON, or the ids of items that have another place,
// with the queues of those that are back there.
func (e *edit) run(args []string) error {
	counts := &idResults{done: e.done, quiet: e.json}
	do := func(ctx context.Context, s *session, ids []string) (again []string, err error) {
		results, err := e.do(s.queue, ctx, ids)
		if refused := malformed(ids, err); refused != nil {
			failure := subjects.Failure{Code: refused.Code, Text: refused.Text}
			results, err = []client.ItemResult{{ID: ids[0], Failure: failure}}, nil
		}
		results, again = target.WithoutRoom(results)
		var text bytes.Buffer
		for _, r := range results {
			if e.elsewhere != nil && errors.Is(r.Err(), client.ErrNotFound) {
				r = e.elsewhere(ctx, s, r)
			}
			counts.add(cmp.Or(r.ID, r.Place), r.Err())
			switch {
			case e.json:
				_ = json.NewEncoder(&text).Encode(r) // never returns an error for this type
			case r.Err() != nil:
			case r.Home != "":
				text.WriteString(terminal.Lines(r.ID + "\t" + r.Home + "\n"))
			case r.Place != "":
				text.WriteString(terminal.Lines(r.ID + "\n"))
			}
		}
		if err == nil {
			_, err = e.cmd.OutOrStdout().Write(text.Bytes())
		}
		return again, err
	}

	return e.byIDs(args, "items may have been "+e.done, counts, do)
}

func newRm(a *app) *cobra.Command {
	var state client.State
	e := &edit{queue: &queue{app: a}, done: "removed"}
	e.do = func(q *client.Queue, ctx context.Context, ids []string) ([]client.ItemResult, error) {
		return q.RemoveItemsIn(ctx, state, ids)
	}
	cmd := e.command(&cobra.Command{
		Use:        "rm QUEUE ID...",
		SuggestFor: []string{"del", "remove"},
		Short:      "Remove items by their ids",
		Long: `Remove items by their ids, whichever state they are in, or with --state done
what is kept of finished jobs; - stands for ids from standard input, the first
word of each line. A worker that has leased one gets an error when it
acknowledges it.`,
		Example: `  pq rm jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq items jobs --match acme --all | pq rm jobs -`,
	}, e.run)
	addState(cmd, &state)
	return cmd
}

func newRelease(a *app) *cobra.Command {
	e := &edit{queue: &queue{app: a}, done: "released", do: (*client.Queue).ReleaseItems}
	return e.command(&cobra.Command{
		Use:   "release QUEUE ID...",
		Short: "End leases whose holders are dead",
		Long: `End the leases of items by their ids, or - for ids from standard input, so that
they are back at their places at once. The deliveries do not count. A holder
that is not dead gets an error when it acknowledges the item. pq busy lists what
is held by whom.`,
		Example: `  pq release jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq busy jobs --all | pq release jobs -`,
	}, e.run)
}

func newMv(a *app) *cobra.Command {
	var priority flags.Priority
	var byPlace bool
	e := &edit{queue: &queue{app: a}, done: "moved"}
	e.do = func(q *client.Queue, ctx context.Context, ids []string) ([]client.ItemResult, error) {
		if byPlace {
			return q.MoveItemsAt(ctx, ids, int64(priority))
		}
		return q.MoveItems(ctx, ids, int64(priority))
	}
	cmd := e.command(&cobra.Command{
		Use:   "mv QUEUE ID... PRIORITY",
		Short: "Move items to another priority",
		Long: `Move items of a priority queue to the end of another priority, and print their
ids, which stay the same; - stands for ids from standard input, the first word
of each line. An item that is leased cannot be moved.`,
		Example: `  pq mv jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo -9
  pq items jobs --match acme --all | pq mv jobs - 9`,
	}, func(args []string) error {
		ids, last := args[:len(args)-1], args[len(args)-1]
		if e.fifo {
			return exit.Usagef("a FIFO queue has no priorities, so nothing can be moved in one")
		}
		if err := priority.Set(last); err != nil {
			return exit.Usage(err)
		}
		return e.run(ids)
	})
	addByPlace(cmd, &byPlace)
	return cmd
}
