package main

import (
	"bufio"
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

	t := &tally{cmd: m.q.cmd, all: len(ids), done: m.done, quiet: m.json}
	for len(ids) > 0 {
		if ctx.Err() != nil {
			return t.stopped(context.Cause(ctx))
		}

		n := min(len(ids), s.maxIDs())
		results, err := m.do(s.queue, s.usable, ids[:n])
		if err != nil {
			return t.stopped(s.outdated(m.q.verb, m.q.kind(), s.explain(err, m.unknown)))
		}

		text, again := m.read(results, t)
		if _, err := io.WriteString(m.q.cmd.OutOrStdout(), text); err != nil {
			return err
		}
		ids = append(again, ids[n:]...)
	}
	return t.verdict(s)
}

// read counts results. It returns what to print of them, and the ids for which there was no room
// beside the others.
func (m *byIDs) read(results []client.ItemResult, t *tally) (text string, again []string) {
	full := func(r client.ItemResult) bool { return r.Code == subjects.CodeTooLarge }
	progress := slices.ContainsFunc(results, func(r client.ItemResult) bool { return !full(r) })

	for i := range results {
		r := &results[i]
		if progress && full(*r) {
			again = append(again, r.ID)
			continue
		}
		t.add(r.ID, r.Err())
		if m.json {
			line, _ := json.Marshal(r) // never returns an error for this type
			text += string(line) + "\n"
		} else if r.Code == 0 {
			text += m.line(r)
		}
	}
	return text, again
}

// maxIDs is how many ids one request can name, so that the reply fits into a message.
func (s *session) maxIDs() int {
	n := subjects.MaxItems
	for n > 1 && int64(subjects.MaxItemResults(n)) > s.nc.MaxPayload() {
		n /= 2
	}
	return n
}

// tally counts what became of items by their ids. It is the error if some failed.
type tally struct {
	cmd   *cobra.Command
	all   int    // how many there are
	done  string // what is done with one
	quiet bool   // somebody else says what failed

	failed, missing, succeeded int // missing ones have failed, too
	last                       error
}

// add counts a result, and says what failed if there are several.
func (t *tally) add(id string, err error) {
	if err == nil {
		t.succeeded++
		return
	}

	t.failed++
	t.last = err
	if errors.Is(err, client.ErrNotFound) {
		t.missing++
		t.last = errNoItem
	}
	if t.all > 1 && !t.quiet {
		_, _ = fmt.Fprintf(t.cmd.ErrOrStderr(), "pq: %s: %v\n", id, t.last) // the exit code says so too
	}
}

// stopped returns the error of what ended before all was done.
func (t *tally) stopped(err error) error {
	if t.all == 1 {
		return err
	}
	return fmt.Errorf("%w: %d of %d items were %s before", err, t.succeeded, t.all, t.done)
}

// verdict returns the error of the command.
func (t *tally) verdict(s *session) error {
	switch {
	case t.failed == 0:
		return nil
	case t.all == 1:
		return s.absent(s.usable, t.last)
	}
	return t
}

// Error implements error.
func (t *tally) Error() string {
	return fmt.Sprintf("%d of %d items were not %s", t.failed, t.all, t.done)
}

// Is reports whether all that failed were missing.
func (t *tally) Is(err error) bool { return err == client.ErrNotFound && t.missing == t.failed }

// idArguments returns the ids in arguments, each once. For - they are those that standard input has:
// the first word of each line.
func idArguments(cmd *cobra.Command, args []string) (ids []string, err error) {
	if slices.Contains(args, "-") {
		if len(args) > 1 {
			return nil, exit.UsageError{Err: errors.New("- stands for the ids in standard input: leave out the others")}
		}
		if args, err = interrupt.Await(cmd.Context(), func() ([]string, error) { return firstWords(cmd.InOrStdin()) }); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
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

func firstWords(in io.Reader) (words []string, err error) {
	if err := terminal.Readable(in); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			words = append(words, fields[0])
		}
	}
	return words, lines.Err()
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
