package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/subjects"
)

// push is the command line of pq push.
type push struct {
	queue
	priority int64
	headers  []string
	lines    bool
	parallel int
	json     bool
}

func newPush(a *app) *cobra.Command {
	p := &push{queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "push QUEUE [VALUE|-]",
		Short: "Add an item, and print its id once it is on disk",
		Long: `Add an item to a queue, and print its id once it is on disk.

VALUE is taken as it is. Without it, or with -, the value is all of standard
input; with --lines each line of standard input is an item.`,
		Example: `  pq push jobs hello
  pq push jobs --priority -5 --header Trace:abc "do this first"
  pq push --fifo mail - < letter.txt
  seq 1000 | pq push jobs --lines --parallel 32`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return p.run(cmd, args[1:])
		},
	}
	p.addFlags(cmd)
	flags := cmd.Flags()
	flags.Int64VarP(&p.priority, "priority", "p", 0, "`priority`; pop takes the smallest first")
	flags.StringArrayVarP(&p.headers, "header", "H", nil, "`NAME:VALUE` to store with the item (may be repeated)")
	flags.BoolVar(&p.lines, "lines", false, "push each line of standard input as an item")
	flags.IntVar(&p.parallel, "parallel", 1, "with --lines, the `number` of pushes under way at once; over 1 the order of the lines is not kept")
	flags.BoolVar(&p.json, "json", false, "print the whole reply as JSON")
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
	c, err := p.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	out := &lockedWriter{w: cmd.OutOrStdout()}
	if p.lines {
		return p.pushLines(cmd.Context(), c, *m, cmd.InOrStdin(), out)
	}
	if len(values) == 1 && values[0] != "-" {
		m.Data = []byte(values[0])
	} else if m.Data, err = io.ReadAll(cmd.InOrStdin()); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return p.push(c, m, out)
}

// header finds mistakes in the flags, and returns the header of the messages.
func (p *push) header(cmd *cobra.Command, values []string) (nats.Header, error) {
	header := nats.Header{}
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: want NAME:VALUE", h)
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
	if !p.fifo && p.priority != 0 {
		header.Set(subjects.HeaderPriority, strconv.FormatInt(p.priority, 10))
	}
	return header, nil
}

// push adds one item and prints what came back.
func (p *push) push(c *client, m *nats.Msg, out io.Writer) error {
	reply, err := c.request(m)
	if err != nil {
		return err
	}
	if p.json {
		_, err = fmt.Fprintf(out, "%s\n", reply.Data)
		return err
	}
	var stored struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(reply.Data, &stored); err != nil {
		return fmt.Errorf("the reply to the push is not JSON: %w", err)
	}
	_, err = fmt.Fprintln(out, stored.ID)
	return err
}

// pushLines pushes the lines of in, without their line ends, each in a copy of
// m, and stops at the first that fails.
func (p *push) pushLines(ctx context.Context, c *client, m nats.Msg, in io.Reader, out io.Writer) error {
	group, failed := errgroup.WithContext(ctx)
	group.SetLimit(p.parallel)
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, int(c.nc.MaxPayload())+1)
	for number := 1; failed.Err() == nil && scanner.Scan(); number++ {
		line := m
		line.Data = bytes.Clone(scanner.Bytes())
		group.Go(func() error {
			if err := p.push(c, &line, out); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return ctx.Err()
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
