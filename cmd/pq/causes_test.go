package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

// died makes an item of a queue a dead letter for each reason.
func (c *cli) died(queue string, reasons ...string) {
	c.t.Helper()
	c.ok("", "config", queue, "max_deliver=1")

	for i, reason := range reasons {
		c.ok("", "push", queue, fmt.Sprint("item ", i))
		must(c.t, c.leased(queue).Nak(context.Background(), 0, client.Reason(reason)))
	}
}

// Dead letters that differ only in numbers have one cause, and the most frequent cause comes first.
func TestDeadByCause(t *testing.T) {
	c, _ := newCLI(t)
	c.died("jobs", "dial tcp 10.0.0.1:5432: i/o timeout", "no such user",
		"dial tcp 10.0.0.2:5432: i/o timeout")
	c.died("mail", "no such user")

	times := at + `\t` + at
	timeouts := `2\tjobs-dead\tjobs\t` + times + `\t[\w-]+\tdial tcp \*: i/o timeout\n`
	user := func(queue string) string {
		return `1\t` + queue + `-dead\t` + queue + `\t` + times + `\t[\w-]+\tno such user\n`
	}

	for args, want := range map[string]string{
		"dead --by cause":              timeouts + user("mail") + user("jobs"),
		"dead jobs --by cause":         timeouts + user("jobs"),
		"dead --by cause --match user": user("mail") + user("jobs"),
		"dead --by cause --fifo":       "",
	} {
		got := c.ok("", strings.Fields(args)...)
		if !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("pq %s printed %q, want %s", args, got, want)
		}
	}

	var line target.Cause
	must(t, json.NewDecoder(
		strings.NewReader(c.ok("", "dead", "--by", "cause", "--json"))).Decode(&line))
	if line.Count != 2 || line.Queue != "jobs-dead" || line.Home != "jobs" ||
		line.Example != "dial tcp 10.0.0.2:5432: i/o timeout" || !line.Newest.After(line.Oldest) {
		t.Errorf("printed %+v", line)
	}

	// A cause, as it is printed, is opened with --error.
	for text, want := range map[string]int{line.Text: 2, line.Example: 1, "no such user": 2} {
		if got := c.ok("", "dead", "--error", text); strings.Count(got, "\n") != want {
			t.Errorf("--error %q printed %q, want %d lines", text, got, want)
		}
	}

	const none = "pq: no dead letter has this error or cause: pq dead --by cause lists those " +
		"there are\n"
	stdout, stderr, code := c.run("", "dead", "--error", "no such")
	if stdout != "" || stderr != none || code != exitOK {
		t.Errorf("of no cause: %q, %q, exit code %d", stdout, stderr, code)
	}
}

// --error takes a cause or the text of an error, and redrives only the dead letters that have it.
func TestRedriveByCause(t *testing.T) {
	c, _ := newCLI(t)
	c.died("jobs", "timeout after 1s", "no such user", "timeout after 2s", "timeout after 3s")
	c.fails(exitEmpty, "pq: no dead letter of jobs-dead has this error: pq dead --by cause lists "+
		"the causes there are\n",
		"redrive", "jobs-dead", "--error", "timeout", "--yes")

	got := c.ok("", "redrive", "jobs-dead", "--error", "timeout after 3s", "--yes")
	if !regexp.MustCompile(`^[\w-]+\tjobs\n$`).MatchString(got) {
		t.Errorf("printed %q", got)
	}

	c.prints("item 3", "pop", "jobs")
	got = c.ok("", "redrive", "jobs-dead", "--error", "timeout after *", "--max", "1", "--yes",
		"--json")
	if strings.Count(got, `"home":"jobs"`) != 1 {
		t.Errorf("printed %q", got)
	}

	c.prints("item 0\n", "pop", "jobs", "--all")
	c.prints("2\n", "len", "jobs-dead")
}
