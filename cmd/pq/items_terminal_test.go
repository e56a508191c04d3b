//go:build unix

package main

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// A search says how far it is, shows at once what it finds, and ends at Ctrl-C with the place to go
// on from.
func TestInterruptOfASearch(t *testing.T) {
	c, r := newRelay(t)
	term := newTerminal(t, 80)
	p := term.start(c, nil, "items", "jobs", "--match", "acme", "--all", "--prefix", "relay")
	next := someID

	page := subjects.ItemsPage{
		Items: []subjects.StoredItem{{
			ID:    someID,
			State: subjects.StateReady,
			Value: []byte("of acme"),
		}},
		Next:    &next,
		Scanned: 10_000,
	}

	m := r.next()
	r.respond(m, &nats.Msg{Data: page.Encode()})
	term.sees("of acme\r\n")

	page.Items = nil
	for !strings.Contains(term.output.String(), " items looked at, 1 found") {
		r.respond(r.next(), &nats.Msg{Data: page.Encode()})
	}

	r.next()
	_, err := term.keys.WriteString("\x03")
	must(t, err)

	p.ends(exitSignal + int(syscall.SIGINT))
	const said = "pq: stopped by a signal (interrupt): go on with --after " + someID
	term.sees(said + "\r\n")

	lines := term.screen()
	row := strings.Fields(lines[1])
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "ID ") ||
		row[0] != someID || !strings.HasSuffix(lines[2], said) {
		t.Errorf("the screen shows\n%s", strings.Join(lines, "\n"))
	}
}

// On a terminal, lists have a heading, short times and the time that they are as of.
func TestItemsOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.pushInStates()
	c.ok("", "push", "jobs", "x")
	c.bury("the disk is full")

	for _, m := range []struct {
		args  string
		words []string
	}{
		{"items jobs --limit 2", []string{"ID      ", "first", "second", "pq: there may be more: " +
			"--all, or --after ", "as of "}},
		{"items jobs --max", []string{"ID      ", "delayed ", "second", "leased ", "as of "}},
		{
			"items jobs --match nowhere",
			[]string{"pq: nothing in jobs matches: 3 items looked at", "as of "},
		},
		{
			"done jobs --match nowhere",
			[]string{"pq: nothing in jobs matches: 0 items looked at", "as of "},
		},
		{
			"dead --match nowhere",
			[]string{"pq: no dead letter matches: 1 item looked at", "as of "},
		},
		{"busy", []string{"QUEUE  HOLDER  HELD  LEFT  TRY", "  jobs   —", "as of "}},
		{
			"dead jobs --by cause",
			[]string{"     1  jobs-dead, newest ", "        the disk is full"},
		},
		{"dead jobs", []string{"jobs-dead:", "jobs: max_deliver (after 1 " +
			"delivery", "    the disk is full", "    x"}},
	} {
		term := newTerminal(t, 80)
		term.start(c, nil, strings.Fields(m.args)...).ends(exitOK)
		last := m.words[len(m.words)-1]
		term.sees(last)

		for i, line := range term.screen() {
			if i < len(m.words) && !strings.Contains(line, m.words[i]) ||
				len(line) > 80 && !strings.HasPrefix(line, "pq: ") {
				t.Errorf("pq %s shows %q, want %q", m.args, line, m.words[min(i, len(m.words)-1)])
			}
		}
	}
}

// bury makes the first item of jobs a dead letter, after one delivery.
func (c *cli) bury(reason string) {
	c.t.Helper()
	c.ok("", "config", "jobs", "max_deliver=1")
	must(c.t, c.leased("jobs").Nak(context.Background(), 0, client.Reason(reason)))
}

// Whatever prints an item says why it is a dead letter.
func TestWhyAnItemIsADeadLetter(t *testing.T) {
	c, _ := newCLI(t)
	id := strings.TrimSpace(c.ok("", "push", "jobs", "x"))

	var alive item
	if decode(t, c.ok("", "get", "jobs", id, "--json"), &alive); alive.DeadLetter != nil {
		t.Errorf("alive: %+v", alive)
	}

	c.bury("the disk is full")
	it := c.item("peek", "jobs-dead")

	for _, args := range []string{
		"peek jobs-dead",
		"get jobs-dead " + it.ID,
		"lease jobs-dead --ack-wait 1h",
		"pop jobs-dead",
	} {
		if strings.HasPrefix(args, "pop") {
			c.ok("", "release", "jobs-dead", it.ID)
		}

		d := c.item(strings.Fields(args)...).DeadLetter
		if d == nil || d.Queue != "jobs" || d.Reason != "max_deliver" ||
			d.Error != "the disk is full" || d.Deliveries != 1 || d.At == "" {
			t.Errorf("pq %s: %+v", args, d)
		}
	}
}

// On a terminal, people see it too, and commands of pq work hear of it.
func TestWhoHearsOfDeadLetters(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "x\x1b]0;y\a")
	c.bury("the disk is full")
	const script = `echo "$PQ_DEAD_QUEUE, $PQ_DEAD_REASON, $PQ_DEAD_ERROR, ` +
		`$PQ_DEAD_DELIVERIES, ${PQ_DEAD_AT%%-*}"; exit 1`
	p := c.start(nil, "work", "jobs-dead", "--retry-delay", "0", "--", "sh", "-c", script)
	p.sees(&p.stdout, "jobs, max_deliver, the disk is full, 1, 2")
	p.stop()
	c.has("pq\tjobs\t0\t0\t0\npq\tjobs-dead\t1\t0\t0\n")
	c.prints("x\x1b]0;y\a", "peek", "jobs-dead")
	term := newTerminal(t, 80)
	term.start(c, nil, "pop", "jobs-dead").ends(exitOK)
	term.sees("y\\a\r\n")
	term.shows("pq: a dead letter of jobs: max_deliver (after 1 delivery): the disk is full",
		`x\x1b]0;y\a`)
}
