//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

// Only yes is an answer to a question. Ctrl-C changes nothing either, and says so.
func TestQuestionsOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "jobs", "--lines")
	c.bury("no")
	// The first, but not the last.
	c.ok("", "push", "jobs-dead", "no dead letter", "--priority", "-1")
	const unanswered = "pq: nothing was done, because the answer was not yes"
	const interrupted = "pq: stopped by a signal (interrupt): nothing was changed"
	purge := "Remove 2 items of jobs? [y/N] "
	redrive := "Send the dead letters among 2 items of jobs-dead back? [y/N] "

	for _, step := range []struct {
		command, question, answer, says string
		code                            int
	}{
		{"purge jobs", purge, "\n", unanswered, exitError},
		{"purge jobs", purge, "\x04", unanswered, exitError}, // Ctrl-D
		{"purge jobs", purge, "\x03", interrupted, exitSignal + int(syscall.SIGINT)},
		{"redrive jobs-dead", redrive, "\x03", interrupted, exitSignal + int(syscall.SIGINT)},
		{"redrive jobs-dead --error no", "Send 1 dead letter of jobs-dead back? " +
			"[y/N] ", "n\n", unanswered, exitError},
		{"purge jobs", purge, "y\n", "2 items removed from jobs", exitOK},
	} {
		c.prints("pq\tjobs\t2\t0\t0\npq\tjobs-dead\t2\t0\t0\n", "ls")
		term := newTerminal(t, 80)
		p := term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device },
			strings.Fields(step.command)...)
		term.sees(step.question)
		_, err := term.keys.WriteString(step.answer)
		must(t, err)

		p.ends(step.code)
		term.sees(step.says + "\r\n")

		if step.says == interrupted {
			term.shows(step.question+"^C", interrupted)
		}
	}

	c.prints("0\n", "len", "jobs")
}

// On a terminal, pq ls groups digits, cuts long names and marks paused queues.
func TestLsOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok(strings.Repeat("x\n", 1234), "push", "jobs", "--lines")
	c.ok("", "push", "--fifo", strings.Repeat("long-name", 10), "x")
	c.ok("", "pause", "jobs")
	term := newTerminal(t, 80)
	term.start(c, nil, "ls").ends(exitOK)
	term.sees("\nas of ")
	lines := slices.DeleteFunc(term.screen(), func(line string) bool { return line == "" })

	want := []string{
		"KIND  QUEUE                                       READY  LEASED  DELAYED",
		"pq    jobs                                        1,234       0        0  paused",
		"q     long-namelong-namelong-namelong-namelong-~      1       0        0",
	}
	if len(lines) != 4 || !slices.Equal(lines[:3], want) {
		t.Errorf("the screen shows\n%s\nwant\n%s", strings.Join(lines, "\n"),
			strings.Join(want, "\n"))
	}

	if got := c.ok("", "ls"); strings.Contains(got, "paused") || strings.Contains(got, "as of") {
		t.Errorf("into a pipe: %q", got)
	}

	term = newTerminal(t, 80)
	term.start(c, nil, "watch", "jobs", "--count", "1").ends(exitOK)
	term.sees("  paused")
}

// No zone wraps at 80 columns: names are cut first.
func TestSchedulesOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	long := strings.Repeat("long-name", 5)

	for _, args := range [][]string{
		{
			"jobs", "nightly", "--cron", "0 3 1 1 *", "--zone", "Europe/Berlin", "--until",
			"2030-12-31T00:00:00Z",
		},
		{long, long, "--cron", "0 3 1 1 *", "--zone", "America/New_York"},
		{"jobs", "often", "--every", "1h"},
	} {
		c.ok("", append([]string{"schedule", "add"}, args...)...)
	}

	c.ok("", "schedule", "run", "jobs", "often")
	c.ok("", "schedule", "pause", "jobs", "often")
	term := newTerminal(t, 80)
	term.start(c, nil, "schedule", "ls").ends(exitOK)
	term.sees("\nas of ")
	lines := slices.DeleteFunc(term.screen(), func(line string) bool { return line == "" })

	for i, want := range []string{
		`QUEUE +ID +WHEN +NEXT +LAST  FIRED  SKIP`,
		`jobs +nightly +0 3 1 1 \* Europe/Berlin +\d\d-\d\d \d\d:\d\d +-      0     0`,
		`long-n\S*~  long-n\S*~  0 3 1 1 \* America/New_York  \d\d-\d\d \d\d:\d\d +-      0     0`,
		`jobs +often +every 1h +paused +\d+\w+      1     0`,
	} {
		if len(lines) != 5 || !regexp.MustCompile("^"+want+"$").MatchString(lines[i]) {
			t.Errorf("%d lines, %q, want %s", len(lines), lines[min(i, len(lines)-1)], want)
		}
	}
}

// The table is drawn over itself, and no line is longer than the terminal is wide.
func TestWatchOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", strings.Repeat("long-name", 10), "x")
	term := newTerminal(t, 40)
	term.start(c, nil, "watch", "--count", "2", "--every", "100ms").ends(exitOK)

	const toTop, end = "\x1b[H", "\x1b[J"
	testenv.Eventually(t, func() error {
		frames := strings.Split(term.output.String(), toTop)
		if len(frames) != 3 || !strings.HasSuffix(frames[2], end) {
			return fmt.Errorf("written %q", frames)
		}

		for line := range strings.Lines(strings.ReplaceAll(frames[2], "\x1b[K", "")) {
			if len(strings.TrimRight(line, "\r\n")) > 40 {
				return fmt.Errorf("%q is too long", line)
			}
		}

		if !strings.Contains(frames[2], "   1 queue\x1b[K") ||
			!strings.Contains(frames[2], "QUEUE") {
			return fmt.Errorf("drawn %q", frames[2])
		}

		return nil
	})
}
