package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// doctor is the command line of pq doctor, and what it has found.
type doctor struct {
	*app
	json   bool
	queue  queue // its name is "" unless one is named
	out    io.Writer
	failed int
	err    error // of printing
}

// finding is the result of a check.
type finding struct {
	Result result `json:"result"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	ToDo   string `json:"to_do,omitempty"`
}

type result string

const (
	fine    result = "ok"
	notable result = "note" // it may be meant so
	failed  result = "FAIL"
)

func newDoctor(a *app) *cobra.Command {
	d := &doctor{app: a, queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "doctor [QUEUE]",
		Short: "Look for what is wrong, and say what to do",
		Long: `Look at everything that a request needs: the NATS server and the login, the
permissions, the bridges, their versions, stores and clocks, and whether the
store answers. Say for each what to do. Nothing is changed. The exit code is 1
if something is wrong. With QUEUE, the permissions are those for this queue, and
it is the queue that is asked for something.`,
		Example: `  pq doctor
  pq doctor jobs --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				d.queue.name = args[0]
				if err := d.queue.check(); err != nil {
					return err
				}
			} else if d.queue.fifo {
				return exit.UsageError{Err: errors.New("--fifo says what QUEUE is: name one, or leave it out")}
			}
			d.out = cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}

	d.queue.addFlags(cmd)
	cmd.Flags().BoolVar(&d.json, "json", false, "print a line of JSON for each check")
	return cmd
}

func (d *doctor) run(ctx context.Context) error {
	if _, err := d.grammar(); err != nil {
		return err
	}

	s, err := d.open(ctx)
	if err != nil {
		if ctx.Err() != nil || errors.As(err, new(exit.InputError)) {
			return err
		}
		d.report(failed, "nats", err.Error(), "")
		return d.verdict()
	}
	defer s.close()
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()

	last := d.checkStore
	if d.queue.name != "" {
		last = d.checkQueue
	}
	for _, check := range []func(*session){d.checkServer, d.checkPermissions, d.checkBridges, last} {
		if check(s); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if d.err != nil {
			break
		}
		s.renew() // the server may have refused something
	}
	return d.verdict()
}

// verdict is the error of the command.
func (d *doctor) verdict() error {
	switch {
	case d.err != nil:
		return d.err
	case d.failed == 1:
		return errors.New("one check failed")
	case d.failed > 1:
		return fmt.Errorf("%d checks failed", d.failed)
	}
	return nil
}

// report prints a finding.
func (d *doctor) report(r result, check, what, toDo string) {
	if r == failed {
		d.failed++
	}
	var err error
	if d.json {
		err = json.NewEncoder(d.out).Encode(finding{r, check, what, toDo})
	} else {
		_, err = io.WriteString(d.out, d.lines(r, check, what, toDo))
	}
	if d.err == nil {
		d.err = err
	}
}

// lines writes a finding for people.
func (d *doctor) lines(r result, check, what, toDo string) string {
	const indent, width = 18, 80
	if toDo != "" {
		if !strings.HasSuffix(what, "?") {
			what += "."
		}
		what += " To do: " + toDo
	}

	lines := strings.Split(text.WrapSoft(what, width-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}

	mark := fmt.Sprintf("%-6s", r)
	if terminal.Coloured(d.out) {
		mark = map[result]text.Color{fine: text.FgGreen, notable: text.FgYellow, failed: text.FgRed}[r].EscapeSeq() + mark + text.Reset.EscapeSeq()
	}
	return fmt.Sprintf("%s%-12s%s\n", mark, check, strings.Join(lines, "\n"+strings.Repeat(" ", indent)))
}
