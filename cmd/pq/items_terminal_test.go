//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// A search says how far it is, shows at once what it finds, and ends at Ctrl-C with the place to go on
// from.
func TestInterruptOfASearch(t *testing.T) {
	c, r := newRelay(t)
	term := newTerminal(t, 80)
	p := term.start(c, nil, "items", "jobs", "--match", "acme", "--all", "--prefix", "relay")
	next := someID
	page := subjects.ItemsPage{Items: []subjects.StoredItem{{ID: someID, State: subjects.StateReady, Value: []byte("of acme")}}, Next: &next, Scanned: 10_000}
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
	if row := strings.Fields(lines[1]); len(lines) != 4 || !strings.HasPrefix(lines[0], "ID ") || row[0] != someID || !strings.HasSuffix(lines[2], said) {
		t.Errorf("the screen shows\n%s", strings.Join(lines, "\n"))
	}
}

func TestItemsOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.browsable()
	c.ok("", "push", "jobs", "x")
	c.bury("the disk is full")
	for _, m := range []struct {
		args  string
		words []string
	}{
		{"items jobs --limit 2", []string{"ID      ", "first", "second", "pq: there may be more: --all, or --after "}},
		{"items jobs --max", []string{"ID      ", "delayed ", "second", "leased "}},
		{"dead jobs", []string{"jobs-dead:", "jobs: max_deliver after 1 delivery", "    the disk is full", "    x"}},
	} {
		term := newTerminal(t, 80)
		term.start(c, nil, strings.Fields(m.args)...).ends(exitOK)
		last := m.words[len(m.words)-1]
		term.sees(last)
		for i, line := range term.screen() {
			if i < len(m.words) && !strings.Contains(line, m.words[i]) || len(line) > 80 && !strings.HasPrefix(line, "pq: ") {
				t.Errorf("pq %s shows %q, want %q", m.args, line, m.words[min(i, len(m.words)-1)])
			}
		}
	}
}
