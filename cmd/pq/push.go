package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// push is the command line of pq push.
type push struct {
	queue
	priority priorityFlag
	headers  []string
	lines    bool
	parallel countFlag
	json     bool
}

func newPush(a *app) *cobra.Command {
	p := &push{queue: queue{app: a}, parallel: 1}
	cmd := &cobra.Command{
		Use:   "push QUEUE [VALUE|-]",
		Short: "Add an item, and print its id once it is on disk",
		Long: `Add an item to a queue, and print its id once it is on disk.

VALUE is taken as it is. Without it, or with -, the value is all of standard
input; with --lines each line of standard input is an item.

With --lines the first failure stops pq, and so does a signal. The pushes under
way are waited for, and standard error says which lines are in the queue, which
may be, and with what command of sed to print those that are not.`,
		Example: `  pq push jobs hello
  pq push jobs --priority -5 --header Trace:abc "do this first"
  pq push --fifo mail - < letter.txt
  seq 1000 | pq push jobs --lines --parallel 32
  sed -n "42p;46,$p" tasks.txt | pq push jobs --lines`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return p.run(cmd, args[1:])
		},
	}
	p.addFlags(cmd)
	flags := cmd.Flags()
	flags.VarP(&p.priority, "priority", "p", "decimal `priority`; pop takes the smallest first")
	flags.StringArrayVarP(&p.headers, "header", "H", nil, "`NAME:VALUE` to store with the item (may be repeated)")
	flags.BoolVar(&p.lines, "lines", false, "push each line of standard input as an item")
	flags.Var(&p.parallel, "parallel", "with --lines, the `number` of pushes under way at once; over 1 the order of the lines is not kept")
	flags.BoolVar(&p.json, "json", false, "print a line of JSON with queue, id, priority and, with --lines, number of the line")
	return cmd
}

func (p *push) run(cmd *cobra.Command, values []string) error {
	m, err := p.message(subjects.Push, subjects.Enqueue)
	if err != nil {
		return err
	}
	if m.Header, err = p.header(cmd, values); err != nil {
		return usageError{err}
	}
	in, fromInput := cmd.InOrStdin(), len(values) == 0 || values[0] == "-"
	if fromInput {
		if err := readable(in); err != nil {
			return fmt.Errorf("standard input: %w: nothing was pushed", err)
		}
	}
	ctx := cmd.Context()
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	defer sayInterrupted(cmd, "what is in the queue will not be known")()
	out := &lockedWriter{w: cmd.OutOrStdout()}
	switch {
	case p.lines:
		return p.pushLines(ctx, c, *m, in, out)
	case fromInput:
		m.Data, err = await(ctx, func() ([]byte, error) { return readValue(in, c.nc.MaxPayload()) })
	default:
		m.Data = []byte(values[0])
	}
	if err != nil {
		return err
	}
	stored, err := c.push(m)
	if err != nil {
		return err
	}
	return p.print(out, stored)
}

// readValue reads all of in, if that is not more than the server takes.
func readValue(in io.Reader, max int64) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(in, max+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if int64(len(value)) > max {
		return nil, fmt.Errorf("standard input is too large: %w", tooLarge(int(max)))
	}
	return value, nil
}

// header finds mistakes in the flags, and returns the header of the messages.
func (p *push) header(cmd *cobra.Command, values []string) (nats.Header, error) {
	header := nats.Header{}
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: want NAME:VALUE", h)
		}
		if strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("--header %q: a header is one line", h)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	switch {
	case p.fifo && cmd.Flags().Changed("priority"):
		return nil, errors.New("a FIFO queue has no priorities: leave out --priority or --fifo")
	case p.lines && len(values) == 1 && values[0] != "-":
		return nil, errors.New("--lines reads the items from standard input: leave out VALUE")
	case !p.lines && cmd.Flags().Changed("parallel"):
		return nil, errors.New("--parallel goes with --lines")
	case p.parallel < 1:
		return nil, fmt.Errorf("--parallel is %d: want at least 1", p.parallel)
	}
	if cmd.Flags().Changed("priority") {
		if header.Get(subjects.HeaderPriority) != "" {
			return nil, fmt.Errorf("--priority and --header %s exclude each other: leave out one", subjects.HeaderPriority)
		}
		header.Set(subjects.HeaderPriority, p.priority.String())
	}
	return header, nil
}

// pushed is an item that is in the queue, as --json prints it.
type pushed struct {
	Line     int    `json:"line,omitempty"` // with --lines, from 1
	Queue    string `json:"queue"`
	ID       string `json:"id"`
	Priority *int64 `json:"priority,omitempty"`
}

// push adds one item.
func (c *client) push(m *nats.Msg) (*pushed, error) {
	reply, err := c.request(m)
	if errors.As(err, new(unknownError)) {
		return nil, fmt.Errorf("%w: the outcome is unknown, the item may be in the queue", err)
	}
	if err != nil {
		return nil, err
	}
	stored := &pushed{}
	if err := json.Unmarshal(reply.Data, stored); err != nil || stored.ID == "" {
		return nil, unknownError{fmt.Errorf("the reply to the push is not that of a bridge: %.64q", reply.Data)}
	}
	return stored, nil
}

// print prints what came of a push.
func (p *push) print(out io.Writer, stored *pushed) error {
	var err error
	if p.json {
		err = json.NewEncoder(out).Encode(stored)
	} else {
		_, err = fmt.Fprintln(out, stored.ID)
	}
	if err != nil {
		return fmt.Errorf("the item is in the queue as %s, but that cannot be printed: %w", stored.ID, err)
	}
	return nil
}

// lockedWriter lets several pushes print whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
