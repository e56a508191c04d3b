package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// browsing is what pq items and pq dead have in common: which items to print, and how.
type browsing struct {
	queue
	options client.ItemsOptions
	headers []string
	limit   int
	all     bool
	died    string // the error of the dead letters to print, "" for any
	since   time.Duration
	after   time.Time // since then; zero for any time

	table          *terminal.Table    // of the items, nil if they have lines of another kind
	bar            *terminal.Progress // nil if none is shown
	left           int                // items to print
	scanned, found int64
}

func (b *browsing) addFilters(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&b.options.Match, "match", "",
		"only items with this `TEXT` in value, headers or id")
	set.StringArrayVarP(&b.headers, "header", "H", nil, "only items with this header, `NAME:VALUE`")
	set.IntVarP(&b.limit, "limit", "n", 100, "print up to `N`")
	set.BoolVar(&b.all, "all", false, "print all, however many")
	b.addJSON("print a line of JSON for each")
}

// shownValue is how much of a value is asked for if people look at it.
const shownValue = 256

// run checks the flags, connects, and lists. A signal ends it.
func (b *browsing) run(list func(context.Context, *session) error) (err error) {
	if b.left, err = flags.OrAll(b.cmd, "limit", b.limit, b.all); err != nil {
		return err
	}

	headers, err := headersOf(b.headers)
	if err != nil {
		return exit.Usage(err)
	}

	b.options.Headers = map[string]string{}
	for name := range headers {
		b.options.Headers[name] = headers.Get(name)
	}

	if !b.json {
		b.options.ValueBytes = shownValue
	}

	b.bar = terminal.NewProgress(b.cmd.ErrOrStderr())
	_, err = ask(&b.queue, "", func(ctx context.Context, s *session) (none struct{}, err error) {
		return none, list(ctx, s)
	})
	if err == nil && !b.json {
		_, err = io.WriteString(b.cmd.OutOrStdout(), terminal.AsOf(b.cmd.OutOrStdout()))
	}
	return err
}

// walk prints items of a queue, each as JSON or else with row, which returns a line or adds to the
// table, and false to leave one out. It has not looked at the items behind the place that it
// returns, "" after all.
func (b *browsing) walk(
	ctx context.Context, s *session, q *queue, row func(*client.StoredItem) (string, bool),
) (after string, err error) {
	defer b.bar.Clear()
	ask := func(ctx context.Context, o client.ItemsOptions) (client.ItemsPage, error) {
		o.Limit = min(b.left, subjects.MaxItems)
		return target.Queue(s.client, q.fifo, q.name).Items(ctx, o)
	}

	after = b.options.After
	for page, err := range target.Pages(ctx, b.options, ask) {
		if err != nil {
			return after, cmp.Or(context.Cause(ctx), err) // a signal says more than its request
		}

		var text bytes.Buffer
		printed := 0
		for i := range page.Items {
			switch line, ok := row(&page.Items[i]); {
			case !ok:
				continue
			case b.json:
				// Never returns an error for this type.
				_ = json.NewEncoder(&text).Encode(newStored(q, &page.Items[i]))
			default:
				text.WriteString(terminal.Lines(line))
			}
			printed++
		}
		if b.table != nil && !b.json {
			text.WriteString(b.table.Flush())
		}
		if text.Len() > 0 {
			b.bar.Clear()
		}
		if _, err := text.WriteTo(b.cmd.OutOrStdout()); err != nil {
			return after, err
		}

		b.noteProgress(page.Scanned, printed)
		after = *cmp.Or(page.Next, new(string))
		if b.left -= printed; b.left == 0 {
			break
		}
	}
	return after, nil
}

// noteProgress shows that more items were looked at and found.
func (b *browsing) noteProgress(scanned int64, found int) {
	b.scanned += scanned
	b.found += int64(found)
	b.bar.Show(fmt.Sprintf("%s looked at, %s found", items(b.scanned, ""),
		terminal.Grouped(b.found)))
}

// noteMore tells people how to see the rest.
func (b *browsing) noteMore(how string) {
	if terminal.Is(b.cmd.ErrOrStderr()) {
		b.say("there may be more: %s", how)
	}
}

func newItems(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a, maxHelp: "begin with the last: largest priority, newest"}}
	cmd := b.command(&cobra.Command{
		Use:   "items QUEUE",
		Short: "List the items of a queue, or search them",
		Long: `List items in the order in which they would be served, and leave them there: id,
priority, state and until when, age, deliveries, and the beginning of the value.
A search may take a while, and prints items as it finds them.`,
		Example: `  pq items jobs --state delayed --match acme --all --json
  pq items jobs-dead --header "X-Tenant: acme" --all | pq redrive jobs-dead -`,
	}, func([]string) error { return b.run(b.list) })

	addState(cmd, &b.options.State)
	b.addFilters(cmd)
	b.addAfter(cmd)
	return cmd
}

// addAfter adds the flag --after.
func (b *browsing) addAfter(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.options.After, "after", "",
		"go on after the `PLACE` that pq items printed")
}

// list prints the items of the queue.
func (b *browsing) list(ctx context.Context, s *session) error {
	b.options.Max = b.max
	after, err := b.walk(ctx, s, &b.queue, b.tableRow())
	switch {
	case err != nil && after != "" && !errors.Is(err, client.ErrBadRequest):
		return fmt.Errorf("%w: go on with --after %s", err, after)
	case err != nil:
		return err
	case after != "":
		b.noteMore("--all, or --after " + after)
	}

	b.noteNothing(ctx, s)
	return nil
}

// noteNothing tells people if the list is empty, and why.
func (b *browsing) noteNothing(ctx context.Context, s *session) {
	what := cmp.Or(string(b.options.State), "such") + " items"
	if b.options.State == client.Done {
		what = "finished jobs"
	}
	isUnused := b.found == 0 && b.scanned == 0 && b.options.After == "" && s.noteUnused(ctx)
	switch {
	case b.found > 0, isUnused, !terminal.Is(b.cmd.ErrOrStderr()):
	case b.options.Match != "" || len(b.headers) > 0:
		b.say("nothing in %s matches: %s looked at", b.name, items(b.scanned, ""))
	case b.options.After != "":
		b.say("%s has no %s behind that place", b.name, what)
	case b.options.State == "":
		b.say("%s is empty", b.name)
	default:
		b.say("%s has no %s", b.name, what)
	}
}

// tableRow makes the table of the items, and returns what adds a row to it.
func (b *browsing) tableRow() func(*client.StoredItem) (string, bool) {
	row, columns := itemRow, itemColumns
	if b.options.State == client.Done {
		row, columns = doneRow, doneColumns
	}
	b.table = terminal.NewTable(b.cmd.OutOrStdout(), columns...)
	people, now := terminal.Is(b.cmd.OutOrStdout()), time.Now()
	return func(it *client.StoredItem) (string, bool) {
		if !b.json {
			b.table.Row(row(it, people, b.fifo, now)...)
		}
		return "", true
	}
}

var itemColumns = []string{"ID", "PRIO>", "STATE", "AGE>", "TRY>", "VALUE~"}

// itemRow returns the row about an item, which has other columns for programs than for people.
func itemRow(it *client.StoredItem, people, fifo bool, now time.Time) []any {
	id := cmp.Or(it.ID, it.Place) // of a damaged item only this may be known
	state, priority, value := string(it.State), strconv.FormatInt(it.Priority, 10), shown(it)
	pushed, due := timeOf(it.PushedAt), timeOf(it.Due)
	if fifo {
		priority = "-"
	}

	if !people {
		return []any{id, priority, state, it.Deliveries, it.Size,
			cmp.Or(timeText(pushed), "-"), cmp.Or(timeText(due), "-"), value}
	}

	if len(it.Headers[subjects.HeaderJoin]) > 0 {
		state = "waits"
	}
	age := ""
	if !pushed.IsZero() {
		age = terminal.Short(now.Sub(pushed))
	}
	if !due.IsZero() {
		state += " " + terminal.Short(due.Sub(now))
	}
	return []any{id, priority, state, age, it.Deliveries, value}
}

// shown returns the beginning of a value on one line, or why it is not there.
func shown(it *client.StoredItem) string {
	if it.Code != 0 {
		return it.Text
	}
	return terminal.Plain(string(it.Value))
}

// addState adds the flag --state.
func addState(cmd *cobra.Command, state *client.State) {
	cmd.Flags().StringVar((*string)(state), "state", "",
		"only this `STATE`: ready, delayed, leased or done")
	flags.Completes(cmd, "state", "ready", "delayed", "leased", "done")
}
