package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

// byIDs does something with items by their ids, and says of each what became of it.
type byIDs struct {
	q       *queue
	json    bool
	unknown string // what an unknown outcome may mean
	done    string // what is done with an item
	do      func(target.Queue, context.Context, []string) ([]client.ItemResult, error)
	line    func(*client.ItemResult) string // of what succeeded
}

// run does it with the ids in the arguments, in requests for a thousand, and says what became of each.
func (m *byIDs) run(args []string) error {
	ids, err := idArguments(m.q.cmd, args)
	if err != nil {
		return err
	}
	ctx := m.q.cmd.Context()
	s, err := m.q.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	defer interrupt.Say(m.q.cmd, m.unknown)()

	f := &failures{cmd: m.q.cmd, all: len(ids), done: m.done, json: m.json}
	for left := ids; len(left) > 0; {
		if ctx.Err() != nil {
			return f.stopped(context.Cause(ctx))
		}

		chunk := left[:min(len(left), s.maxIDs())]
		results, err := m.do(s.queue, s.usable, chunk)
		if err != nil {
			return f.stopped(s.outdated(m.q.verb, m.q.kind(), s.explain(err, m.unknown)))
		}
		again, err := m.print(results, f)
		if err != nil {
			return err
		}
		left = append(again, left[len(chunk):]...)
	}
	return f.verdict(s)
}

// print prints results, and returns the ids for which there was no room beside the others.
func (m *byIDs) print(results []client.ItemResult, f *failures) (again []string, err error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	progress := slices.ContainsFunc(results, func(r client.ItemResult) bool { return r.Code != subjects.CodeTooLarge })

	for i := range results {
		r := &results[i]
		if r.Code == subjects.CodeTooLarge && progress {
			again = append(again, r.ID)
			continue
		}
		f.add(r.ID, r.Failure)
		if m.json {
			err = encoder.Encode(r)
		} else if r.Code == 0 {
			text.WriteString(m.line(r))
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = m.q.cmd.OutOrStdout().Write(text.Bytes())
	return again, err
}

// maxIDs is how many ids one request can name, so that the reply fits into a message.
func (s *session) maxIDs() int {
	n := subjects.MaxItems
	for n > 1 && int64(subjects.MaxItemResults(n)) > s.nc.MaxPayload() {
		n /= 2
	}
	return n
}

// failures is what became of items by their ids.
type failures struct {
	cmd  *cobra.Command
	all  int    // how many there are
	done string // what is done with one
	json bool   // the failures are on standard output

	succeeded, missing int
	failed             int // missing ones included
	last               error
}

// add counts a result, and says what failed if there are several.
func (f *failures) add(id string, failure subjects.Failure) {
	if failure.Code == 0 {
		f.succeeded++
		return
	}

	f.failed++
	f.last = &client.Error{Code: failure.Code, Text: failure.Text}
	if failure.Code == subjects.CodeNotFound {
		f.missing++
		f.last = errNoItem
	}
	if f.all > 1 && !f.json {
		_, _ = fmt.Fprintf(f.cmd.ErrOrStderr(), "pq: %s: %v\n", id, f.last) // the exit code says so too
	}
}

// stopped returns the error of what ended before all was done.
func (f *failures) stopped(err error) error {
	if f.all == 1 {
		return err
	}
	return fmt.Errorf("%w: %d of %d items were %s before", err, f.succeeded, f.all, f.done)
}

// verdict returns the error of the command.
func (f *failures) verdict(s *session) error {
	switch {
	case f.failed == 0:
		return nil
	case f.all == 1:
		return s.absent(s.usable, f.last)
	case f.missing == f.failed:
		return manyFailed{f, errNoItem}
	}
	return manyFailed{f, nil}
}

// manyFailed says how many of several items failed.
type manyFailed struct {
	*failures
	err error
}

func (e manyFailed) Unwrap() error { return e.err }
func (e manyFailed) Error() string {
	return fmt.Sprintf("%d of %d items were not %s", e.failed, e.all, e.done)
}

// idArguments returns the ids in arguments, each once. For - they are those that standard input has:
// the first word of each line.
func idArguments(cmd *cobra.Command, args []string) ([]string, error) {
	if slices.Contains(args, "-") {
		if len(args) > 1 {
			return nil, exit.UsageError{Err: errors.New("- stands for the ids in standard input: leave out the others")}
		}
		in := cmd.InOrStdin()
		if err := terminal.Readable(in); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		var err error
		if args, err = interrupt.Await(cmd.Context(), func() ([]string, error) { return firstWords(in) }); err != nil {
			return nil, err
		}
	}

	seen := map[string]bool{}
	var ids []string
	for _, id := range args {
		if !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	return ids, nil
}

func firstWords(in io.Reader) (words []string, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			words = append(words, fields[0])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return words, nil
}

// printNothing is for what leaves nothing to say.
func printNothing(*client.ItemResult) string { return "" }

func (m *byIDs) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&m.json, "json", false, "print a line of JSON for each item")
}

// command makes cmd do it.
func (m *byIDs) command(cmd *cobra.Command) *cobra.Command {
	m.q.command(cmd, m.run)
	m.addFlags(cmd)
	return cmd
}

func newRm(a *app) *cobra.Command {
	m := &byIDs{&queue{app: a, verb: subjects.Remove}, false, "items may have been removed", "removed", target.Queue.RemoveItems, printNothing}
	return m.command(&cobra.Command{
		Use:     "rm QUEUE ID...",
		Aliases: []string{"remove"},
		Short:   "Remove items by their ids",
		Long: `Remove items by their ids, whichever state they are in; - stands for ids from
standard input, the first word of each line. Who has leased one gets an error
when it acknowledges it.`,
		Example: `  pq rm jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq items jobs --match acme --all | pq rm jobs -`,
	})
}

func newRelease(a *app) *cobra.Command {
	m := &byIDs{&queue{app: a, verb: subjects.Release}, false, "leases may have been ended", "released", target.Queue.ReleaseItems, printNothing}
	return m.command(&cobra.Command{
		Use:   "release QUEUE ID...",
		Short: "End leases whose holders are dead",
		Long: `End the leases of items by their ids, or - for ids from standard input, so that
they are back at their places at once. The deliveries do not count. A holder
that is not dead gets an error when it acknowledges the item.`,
		Example: `  pq release jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq items jobs --state leased --all | pq release jobs -`,
	})
}

func newMv(a *app) *cobra.Command {
	var priority flags.Priority
	m := &byIDs{q: &queue{app: a, verb: subjects.Move}, unknown: "items may have been moved", done: "moved"}
	m.do = func(q target.Queue, ctx context.Context, ids []string) ([]client.ItemResult, error) {
		return q.MoveItems(ctx, ids, int64(priority))
	}
	m.line = func(r *client.ItemResult) string { return r.NewID + "\n" }

	cmd := m.q.command(&cobra.Command{
		Use:     "mv QUEUE ID... PRIORITY",
		Aliases: []string{"move"},
		Short:   "Move items to another priority",
		Long: `Move items of a priority queue to the end of another priority, and print the ids
that they have there; - stands for ids from standard input, the first word of
each line. An item that is leased cannot be moved.`,
		Example: `  pq mv jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo -9
  pq items jobs --match acme --all | pq mv jobs - 9`,
	}, func(args []string) error {
		ids, last := args[:len(args)-1], args[len(args)-1]
		if err := priority.Set(last); err != nil {
			return exit.UsageError{Err: err}
		}
		return m.run(ids)
	})
	m.addFlags(cmd)
	return cmd
}
