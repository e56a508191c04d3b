package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/input"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// pushing is the command line of pq push.
type pushing struct {
	queue
	priority flags.Priority
	headers  []string
	delay    time.Duration
	ttl      time.Duration
	keep     time.Duration
	wait     time.Duration
	msgID    string
	unique   string
	group    string
	typ      string
	weight   int
	lines    bool
}

func newPush(a *app) *cobra.Command {
	p := &pushing{queue: queue{app: a}}
	cmd := p.command(&cobra.Command{
		Use:        "push QUEUE [VALUE|-]",
		SuggestFor: []string{"publish", "add", "enqueue", "send"},
		Short:      "Add an item, or one for each line of input",
		Long:       `Push VALUE, or all of standard input, and print its id once it is on disk.`,
		Example:    `  pq push jobs "do this first" --priority -5 --group acme --header Trace:abc`,
	}, func(values []string) error { return p.run(values) })

	set := cmd.Flags()
	set.VarP(&p.priority, "priority", "p", "decimal `PRIORITY`; pop takes the smallest first")
	set.StringArrayVarP(&p.headers, "header", "H", nil,
		"`NAME:VALUE` to store with the item; repeat for more")
	flags.Duration(set, &p.delay, "delay", 0, "hold the item back for `DURATION`")
	flags.Duration(set, &p.ttl, "ttl", 0, "`DURATION` after which it expires; 0 is never")
	flags.Duration(set, &p.keep, "keep", 0, "keep the outcome for `DURATION` once it is done")
	flags.Duration(set, &p.wait, "wait", 0, "wait `DURATION` for the result, which is kept for 1h")
	set.StringVar(&p.typ, "type", "", "`NAME` of the type of job, which picks the handler")
	set.StringVar(&p.msgID, "msg-id", "", "push it only once, under this message `ID`")
	set.StringVar(&p.unique, "unique", "", "push it unless an item with this `KEY` is there")
	set.StringVar(&p.group, "group", "", "`NAME` of the group; groups take turns")
	set.IntVar(&p.weight, "weight", 0, "serve `N` items of the group in each turn, 1 to 100")
	set.BoolVar(&p.lines, "lines", false, "push each line of standard input as an item")
	p.addJSON("print a line of JSON per item, with its id and line")
	return cmd
}

func (p *pushing) run(values []string) error {
	cmd := p.cmd
	header, err := p.header(cmd, values)
	if err != nil {
		return exit.Usage(err)
	}

	ctx := cmd.Context()
	s, err := p.open(ctx)
	if err != nil {
		return err
	}

	defer s.nc.Close()
	if p.lines {
		return pushLines(s, int64(p.priority), header)
	}

	defer interrupt.Say(cmd, pushInterrupted)()
	var value []byte
	if len(values) > 0 && values[0] != "-" {
		value = []byte(values[0])
	} else if value, err = s.readValue(len(values) > 0); err != nil {
		return err
	}

	ack, err := s.queue.PushMsg(s.finishing(), int64(p.priority),
		client.Message{Value: value, Headers: header})
	if err != nil {
		return s.explain(err, oneUnknown)
	}

	if cmd.Flags().Changed("wait") {
		return s.printResult(ack.ID, p.wait)
	}
	return p.printPushed(0, ack)
}

// defaultKeep is how long a job is kept that somebody waits for.
const defaultKeep = time.Hour

// readValue reads the value of an item from standard input. An empty one is most likely a mistake,
// unless it is asked for.
func (s *session) readValue(asked bool) ([]byte, error) {
	in := s.of.cmd.InOrStdin()
	if terminal.Is(in) {
		s.of.say("reading the value from the terminal: Ctrl-D at the beginning of a line ends it")
	}

	value, err := interrupt.Await(s.of.cmd.Context(),
		func() ([]byte, error) { return input.Value(in, s.nc.MaxPayload()) })
	if err == nil && len(value) == 0 && !asked {
		err = errors.New("standard input is empty: to push an empty item, give - as VALUE")
		return nil, exit.Error{Err: err}
	}

	return value, err
}

// header returns the headers of the items, or the mistake in the flags.
func (p *pushing) header(cmd *cobra.Command, values []string) (nats.Header, error) {
	header, err := headersOf(p.headers)
	switch {
	case err != nil:
		return nil, err
	case p.fifo && cmd.Flags().Changed("priority"):
		return nil, errors.New("a FIFO queue has no priorities: leave out --priority or --fifo")
	case header.Get(subjects.HeaderPriority) != "": // which the client would ignore
		return nil, errors.New("a header cannot set the priority: use --priority")
	case header.Get(subjects.HeaderJoin) != "": // it would be ready at once, without members
		return nil, errors.New(noJoiner)
	case p.lines && len(values) == 1 && values[0] != "-":
		return nil, errors.New("--lines reads the items from standard input: leave out VALUE")
	case p.lines && cmd.Flags().Changed("wait"):
		return nil, errors.New("--wait waits for one job: leave out --lines")
	}

	return header, p.addOptions(cmd, header)
}

// noJoiner says why pq push refuses a joiner.
const noJoiner = "cannot push a joiner with its members: use OpenJoin or All of a client; " +
	`--header "Pq-Joiner: QUEUE ID" adds a member to a joiner that waits`

// headersOf returns the headers of the flags --header.
func headersOf(texts []string) (nats.Header, error) {
	headers, err := target.Headers(texts)
	if err != nil {
		return nil, fmt.Errorf("--header: %w", err)
	}
	return headers, nil
}

// addOptions adds the headers that other flags stand for.
func (p *pushing) addOptions(cmd *cobra.Command, header nats.Header) error {
	err := cmp.Or(flags.InBounds("delay", p.delay, 0, settings.MaxDelay),
		flags.InBounds("ttl", p.ttl, settings.MinTTL, settings.MaxDelay),
		flags.InBounds("keep", p.keep, settings.MinKeep, settings.MaxDelay),
		flags.CheckWait("wait", p.wait))
	if err != nil {
		return err
	}

	if cmd.Flags().Changed("wait") && !cmd.Flags().Changed("keep") {
		keep := cmp.Or(header.Get(subjects.HeaderKeep), defaultKeep.String())
		header.Set(subjects.HeaderKeep, keep)
	}

	for _, o := range []struct {
		flag   string
		option client.PushOption
	}{
		{"delay", client.Delay(p.delay)}, {"ttl", client.TTL(p.ttl)},
		{"keep", client.Keep(p.keep)},
		{"msg-id", client.MsgID(p.msgID)}, {"unique", client.Unique(p.unique)},
		{"group", client.Group(p.group)}, {"weight", client.Weight(p.weight)},
		{"type", client.Type(p.typ)},
	} {
		if !cmd.Flags().Changed(o.flag) {
			continue
		}
		if p.lines && (o.flag == "msg-id" || o.flag == "unique") {
			return fmt.Errorf("--%s names one item: leave out --lines", o.flag)
		}

		for name, values := range (client.Message{}).With(o.option).Headers {
			if header[name] != nil {
				const both = "--%s and --header %s say the same thing: leave out one"
				return fmt.Errorf(both, o.flag, name)
			}
			header[name] = values
		}
	}

	return nil
}
