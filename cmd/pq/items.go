package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	options   client.ItemsOptions
	headers   []string
	limit     flags.Count
	all, json bool
	dead      bool // nothing but dead letters

	s              *session
	bar            *terminal.Progress // nil if none is shown
	left           int                // items to print
	scanned, found int64
}

func (b *browsing) addFilters(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&b.options.Match, "match", "", "only items with this `TEXT` in value, headers or id")
	set.StringArrayVarP(&b.headers, "header", "H", nil, "only items with this header, `NAME:VALUE`")
	b.limit = 100
	set.VarP(&b.limit, "limit", "n", "print up to `N`, 100 unless it says otherwise")
	set.BoolVar(&b.all, "all", false, "print all, however many")
	set.BoolVar(&b.json, "json", false, "print a line of JSON for each")
	flags.WithoutDefault(set, "limit")
}

// begin checks the flags and connects. A signal ends what is under way.
func (b *browsing) begin() (end func(), err error) {
	switch set := b.cmd.Flags(); {
	case b.limit < 1:
		return nil, exit.UsageError{Err: fmt.Errorf("--limit is %d: want at least 1", b.limit)}
	case b.all && set.Changed("limit"):
		return nil, exit.UsageError{Err: fmt.Errorf("--limit and --all exclude each other: leave out one")}
	}

	b.options.Headers = map[string]string{}
	for _, h := range b.headers {
		name, value, err := headerFlag(h)
		if err != nil {
			return nil, exit.UsageError{Err: err}
		}
		b.options.Headers[name] = value
	}

	b.left = int(b.limit)
	if b.all {
		b.left = math.MaxInt
	}

	ctx := b.cmd.Context()
	if b.s, err = b.app.open(ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { b.s.end(context.Cause(ctx)) })
	if stderr := b.cmd.ErrOrStderr(); terminal.Is(stderr) {
		b.bar = terminal.NewProgress(stderr, -1)
	}
	return func() {
		b.bar.Clear()
		stop()
		b.s.close()
	}, nil
}

// walk prints items of a queue, each with row unless it prints JSON: page by page, until there are no
// more or as many as were asked for. The items after the one that it returns were not looked at.
func (b *browsing) walk(q *queue, o client.ItemsOptions, row func(*client.StoredItem) string) (after string, err error) {
	from := target.New(b.s.client, q.fifo, q.name)
	for b.left > 0 {
		o.Limit = min(b.left, subjects.MaxItems)
		page, err := from.Items(b.s.usable, o)
		if b.s.usable.Err() != nil {
			err = context.Cause(b.s.usable)
		}
		if err != nil {
			return o.After, b.s.outdated(b.verb, q.kind(), b.s.explain(err, ""))
		}
		if b.dead {
			page.Items = slices.DeleteFunc(page.Items, func(it client.StoredItem) bool {
				return it.Headers[subjects.HeaderDeadReason] == nil && !it.HeadersCut
			})
		}
		if err := b.printPage(q, page.Items, row); err != nil {
			return o.After, err
		}

		b.scanned += page.Scanned
		b.bar.Show(b.scanned, fmt.Sprintf("%s looked at, %s found", items(b.scanned, ""), terminal.Grouped(b.found)))
		if page.Next == nil {
			return "", nil
		}
		o.After = *page.Next
	}
	return o.After, nil
}

func (b *browsing) printPage(q *queue, list []client.StoredItem, row func(*client.StoredItem) string) error {
	if len(list) == 0 {
		return nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for i := range list {
		if !b.json {
			text.WriteString(row(&list[i]))
		} else if err := encoder.Encode(newStored(q, &list[i])); err != nil {
			return err
		}
	}

	b.found += int64(len(list))
	b.left -= len(list)
	b.bar.Clear()
	_, err := b.cmd.OutOrStdout().Write(text.Bytes())
	return err
}

func newItems(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a, verb: subjects.Items, maxHelp: "begin with the last: largest priority, newest"}}
	cmd := b.command(&cobra.Command{
		Use:   "items QUEUE",
		Short: "List the items of a queue, or search them",
		Long: `List items in the order in which they would be served, and leave them there: id,
priority, state and until when, age, deliveries, and the beginning of the value.
A search may take a while, and prints what it finds at once. Into a pipe, tabs
separate id, priority, state, deliveries, size, push time, due time and value.`,
		Example: `  pq items jobs --state delayed --match acme --all --json
  pq items jobs-dead --header "X-Tenant: acme" --all | pq redrive jobs-dead -`,
		PreRunE: func(*cobra.Command, []string) error { return checkState(b.options.State) },
	}, func([]string) error { return b.list() })

	set := cmd.Flags()
	addState(set, &b.options.State)
	b.addFilters(cmd)
	set.StringVar(&b.options.After, "after", "", "go on behind the item with this `ID`")
	return cmd
}

// shownValue is how much of a value is asked for if people look at it.
const shownValue = 256

func (b *browsing) list() error {
	end, err := b.begin()
	if err != nil {
		return err
	}
	defer end()
	b.s.use(&b.queue)

	o := b.options
	o.Max = b.max
	if !b.json {
		o.ValueBytes = shownValue
	}
	rows := &itemRows{width: terminal.Width(b.cmd.OutOrStdout()), fifo: b.fifo, now: time.Now()}
	after, err := b.walk(&b.queue, o, rows.row)

	stderr := b.cmd.ErrOrStderr()
	b.bar.Clear()
	switch {
	case err != nil && after != "":
		return fmt.Errorf("%w: go on with --after %s", err, after)
	case err != nil:
		return err
	case after != "" && terminal.Is(stderr):
		_, err = fmt.Fprintf(stderr, "pq: there may be more: --all, or --after %s\n", after)
	case b.scanned == 0 && o.After == "":
		b.s.noteUnused(b.s.usable)
	}
	return err
}

// itemRows are lines about items: for people as wide as their terminal, for programs with tabs.
type itemRows struct {
	width int // 0 for programs
	fifo  bool
	now   time.Time
	id    int // width of ids, 0 before the first row
}

func (r *itemRows) row(it *client.StoredItem) string {
	state, priority, value := string(it.State), strconv.FormatInt(it.Priority, 10), terminal.Plain(string(it.Value))
	if r.fifo {
		priority = "-"
	}
	if it.Code != 0 {
		value = it.Text
	}

	if r.width == 0 {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", it.ID, priority, state, it.Deliveries, it.Size,
			cmp.Or(timeText(timeOf(it.PushedAt)), "-"), cmp.Or(timeText(timeOf(it.Due)), "-"), value)
	}

	age := ""
	if it.PushedAt != nil {
		age = terminal.Short(r.now.Sub(*it.PushedAt))
	}
	if it.Due != nil {
		state += " " + terminal.Short(it.Due.Sub(r.now))
	}
	line := func(columns ...any) string {
		return terminal.Clip(fmt.Sprintf("%-*s  %4s  %-11s  %4s  %3s  %s", append([]any{r.id}, columns...)...), r.width) + "\n"
	}

	title := ""
	if r.id == 0 {
		r.id = len(it.ID)
		title = line("ID", "PRIO", "STATE", "AGE", "TRY", "VALUE")
	}
	return title + line(it.ID, priority, state, age, strconv.FormatInt(it.Deliveries, 10), value)
}

// addState adds the flag --state.
func addState(set *pflag.FlagSet, state *client.State) {
	set.StringVar((*string)(state), "state", "", "only items in this `STATE`: ready, delayed or leased")
}

func checkState(state client.State) error {
	if !slices.Contains([]client.State{"", client.Ready, client.Delayed, client.Leased}, state) {
		return exit.UsageError{Err: fmt.Errorf("--state is %q: want %s, %s or %s", state, client.Ready, client.Delayed, client.Leased)}
	}
	return nil
}
