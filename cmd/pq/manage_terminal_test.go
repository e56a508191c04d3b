//go:build unix

package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// Only yes is an answer to a question. Ctrl-C changes nothing either, and says so.
func TestQuestionsOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "jobs", "--lines")
	c.bury("no")
	c.ok("", "push", "jobs-dead", "no dead letter", "--priority", "-1") // the first, but not the last
	const unanswered = "pq: nothing was done, because the answer was not yes"
	const interrupted = "pq: stopped by a signal (interrupt): nothing was changed"
	purge, redrive := "Remove 2 items of jobs? [y/N] ", "Send the dead letters among 2 items of jobs-dead back? [y/N] "
	for _, step := range []struct {
		command, question, answer, says string
		code                            int
	}{
		{"purge jobs", purge, "\n", unanswered, exitError},
		{"purge jobs", purge, "\x04", unanswered, exitError}, // Ctrl-D
		{"purge jobs", purge, "\x03", interrupted, exitSignal + int(syscall.SIGINT)},
		{"redrive jobs-dead", redrive, "\x03", interrupted, exitSignal + int(syscall.SIGINT)},
		{"purge jobs", purge, "y\n", "2 items removed from jobs", exitOK},
	} {
		c.prints("pq\tjobs\t2\t0\t0\npq\tjobs-dead\t2\t0\t0\n", "ls")
		term := newTerminal(t, 80)
		p := term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device }, strings.Fields(step.command)...)
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

// Nobody is asked whether to send back dead letters of a queue that has none at its ends.
func TestRedriveWithoutDeadLetters(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "jobs", "--lines")
	c.ok("a\nb\n", "push", "--fifo", "mail", "--lines")
	for queue, flag := range map[string]string{"jobs": "--fifo=false", "mail": "--fifo"} {
		term := newTerminal(t, 80)
		p := term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device }, "redrive", queue, flag)
		p.ends(exitError)
		said := "pq: nothing to redrive: there is no dead letter at the ends of " + queue + "; --yes looks at all its items"
		term.sees(said + "\r\n")
		term.shows(said)
	}
	c.prints("0\n", "redrive", "jobs", "--yes")
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
		"q     long-namelong-namelong-n~-namelong-namelong-name      1       0        0",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the screen shows\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// An empty queue may be a misspelt one, which helps people, and costs programs more requests.
func TestEmptyQueueOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "x")
	for _, command := range []string{"pop", "peek", "lease"} {
		term := newTerminal(t, 80)
		term.start(c, nil, command, "jbos").ends(exitEmpty)
		term.sees("pq: the queue is empty: no queue jbos is in use: did you mean jobs?\r\n")
		c.fails(exitEmpty, "pq: the queue is empty\n", command, "jbos")
	}
}

func TestColoursOfDoctor(t *testing.T) {
	c, _ := newCLI(t)
	for _, variable := range []string{"NO_COLOR=1", "NO_COLOR="} {
		term := newTerminal(t, 80)
		term.start(c, func(cmd *exec.Cmd) {
			cmd.Env = append(append(os.Environ(), mainVariable+"=1", "TERM=xterm"), variable)
		}, "doctor").ends(exitOK)
		term.sees("store       it answers")
		if coloured := strings.Contains(term.output.String(), "\x1b["); coloured != (variable == "NO_COLOR=") {
			t.Errorf("%s: %q", variable, term.output.String())
		}
	}
}

// The table stands on a screen of its own, and the last one stays when that is gone.
func TestWatchOnATerminal(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "x")
	term := newTerminal(t, 80)
	term.start(c, nil, "watch", "--count", "2", "--every", "100ms").ends(exitOK)
	term.sees(terminal.LeaveScreen)
	term.sees("\n")
	before, after, _ := strings.Cut(term.output.String(), terminal.LeaveScreen)
	if !strings.HasPrefix(before, terminal.EnterScreen) || strings.Count(before, terminal.ToTop) != 2 {
		t.Errorf("written %q", before)
	}
	if !strings.Contains(after, "jobs") || strings.Contains(after, "\x1b") {
		t.Errorf("%q stays", after)
	}
}
