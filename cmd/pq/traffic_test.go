package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// pq done --by sums up how long jobs took by holder and by type.
func TestDoneBy(t *testing.T) {
	c, _ := newCLI(t)
	for range 2 {
		c.push("a", "--keep", "1h", "-H", client.HeaderType+":print")
		finish(t, c.jobs(), "", "")
	}

	const row = `\t2\t\d+ ms\t\d+ ms\n`
	for by, name := range map[string]string{"holder": "ann", "type": "print"} {
		got := c.ok("", "done", "jobs", "--by", by)
		if !regexp.MustCompile("^" + name + row + "$").MatchString(got) {
			t.Errorf("by %s: %q", by, got)
		}
		got = c.ok("", "done", "jobs", "--by", by, "--json")
		var line map[string]any
		decode(t, got, &line)
		if line[by] != name || line["jobs"] != 2.0 || line["median_s"] == nil {
			t.Errorf("by %s as JSON: %q", by, got)
		}
	}
	c.fails(exitUsage, `--by is "x": want holder or type`, "done", "jobs", "--by", "x")
	c.fails(exitUsage, "leave out --by, or", "done", "jobs", "--by", "type", "--all")
}

// pq dead --since leaves out what died earlier, by cause and one by one.
func TestDeadSince(t *testing.T) {
	c, _ := newCLI(t)
	c.died("jobs", "no such user")

	for _, by := range [][]string{nil, {"--by", "cause"}} {
		got := c.ok("", append([]string{"dead", "--since", "1h"}, by...)...)
		if strings.Count(got, "\n") != 1 {
			t.Errorf("%v: of the last hour: %q", by, got)
		}
		stdout, stderr, code := c.run("", append([]string{"dead", "--since", "1ns"}, by...)...)
		if stdout != "" || code != exitOK || !strings.Contains(stderr, "is of the last 1ns") {
			t.Errorf("%v: of the last nanosecond: %q, %q", by, stdout, stderr)
		}
	}
	c.fails(exitUsage, "--since is -1h0m0s", "dead", "--since", "-1h")
}

// pq ls --traffic says what failed, was done and died in the last hour in each queue.
func TestLsTraffic(t *testing.T) {
	c, _ := newCLI(t)
	c.died("jobs", "no such user")
	c.ok("", "push", "--fifo", "jobs", "x")
	c.ok("", "pop", "--fifo", "jobs")
	c.ok("", "push", "--fifo", "jobs", "y")

	c.prints("pq\tjobs\t1\t0\t1\npq\tjobs-dead\t0\t0\t0\nq\tjobs\t0\t1\t0\n", "ls", "--traffic")
	got := c.ok("", "ls", "--traffic", "--fifo", "--json")
	if !strings.Contains(got, `"hour":{"pushed":2,"popped":1,"failed":0,"dead":0}}`) {
		t.Errorf("printed %q", got)
	}
}

// Bars are as long as their numbers, and those of numbers above 0 can be seen.
func TestBars(t *testing.T) {
	const whole = "████████"
	for n, want := range map[int64]string{0: "", 1: "▏", 500: whole[:len(whole)/2], 1000: whole} {
		if got := terminal.Bar(n, 1000); got != want {
			t.Errorf("the bar of %d is %q, want %q", n, got, want)
		}
	}
	if got := terminal.Bar(0, 0); got != "" {
		t.Errorf("the bar of nothing is %q", got)
	}
}
