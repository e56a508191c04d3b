//go:build unix

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestPurgeAsksOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\n", "push", "jobs", "--lines")
	for _, step := range []struct {
		answer, left, says string
		code               int
	}{
		{"\n", "2\n", "pq: nothing was done, because the answer was not yes", exitError},
		{"\x04", "2\n", "pq: nothing was done, because the answer was not yes", exitError}, // Ctrl-D
		{"y\n", "0\n", "2 items removed from jobs", exitOK},
	} {
		term := newTerminal(t, 80)
		p := term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device }, "purge", "jobs")
		term.sees("Remove 2 items of jobs? [y/N] ")
		if _, err := term.keys.WriteString(step.answer); err != nil {
			t.Fatal(err)
		}
		p.ends(step.code)
		term.sees(step.says)
		if got := c.ok("", "len", "jobs"); got != step.left {
			t.Errorf("%q: %s items are left", step.answer, got)
		}
	}
}

func TestLsOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok(strings.Repeat("x\n", 1234), "push", "jobs", "--lines", "--parallel", "32")
	c.ok("", "push", "--fifo", strings.Repeat("long-name", 10), "x")
	term := newTerminal(t, 80)
	term.start(c, nil, "ls").ends(exitOK)
	term.sees("DELAYED")
	term.sees("\nq ")
	lines := slices.DeleteFunc(term.screen(), func(line string) bool { return line == "" })
	want := []string{
		"KIND  QUEUE                                             READY  LEASED  DELAYED",
		"pq    jobs                                              1,234       0        0",
		"q     long-namelong-namelong-namelong-namelong-namelo~      1       0        0",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the screen shows\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
