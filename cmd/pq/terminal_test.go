//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// fakeTerminal is a terminal that a process is started on.
type fakeTerminal struct {
	t      *testing.T
	keys   *os.File // what is written to it was typed
	device *os.File
	output harness.Transcript
}

func newTerminal(t *testing.T, columns uint16) *fakeTerminal {
	t.Helper()
	keys, device, err := pty.Open()
	must(t, err)
	must(t, pty.Setsize(device, &pty.Winsize{Rows: 24, Cols: columns}))
	term := &fakeTerminal{t: t, keys: keys, device: device}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&term.output, keys) // ends with an error once nobody has the device
	}()
	t.Cleanup(func() {
		_ = device.Close()
		<-read
		_ = keys.Close()
	})
	return term
}

// start runs pq as the foreground process of the terminal, with standard output and
// standard error there.
func (term *fakeTerminal) start(c *cli, change func(*exec.Cmd), args ...string) *process {
	term.t.Helper()
	return c.start(func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr = term.device, term.device
		own := attributes(cmd)
		own.Setsid, own.Setctty, own.Ctty = true, true, 1
		if change != nil {
			change(cmd)
		}
	}, args...)
}

// sees waits until words were written.
func (term *fakeTerminal) sees(words string) {
	term.t.Helper()
	testenv.Eventually(term.t, func() error {
		if got := term.output.String(); !strings.Contains(got, words) {
			return fmt.Errorf("%q was not written, but %q", words, got)
		}
		return nil
	})
}

// screen returns the lines that are to be seen, without the blanks at their ends.
func (term *fakeTerminal) screen() []string {
	text := term.output.String()
	if strings.ContainsRune(text, '\x1b') {
		term.t.Errorf("escape sequences: %q", text)
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		var seen []byte
		for part := range strings.SplitSeq(line, "\r") {
			seen = append([]byte(part), seen[min(len(part), len(seen)):]...)
		}
		lines = append(lines, string(bytes.TrimRight(seen, " ")))
	}
	return lines
}

// shows checks what is to be seen, line by line.
func (term *fakeTerminal) shows(lines ...string) {
	term.t.Helper()
	if got := term.screen(); !slices.Equal(got, append(lines, "")) {
		term.t.Errorf("the screen shows %q, want %q", got, lines)
	}
}

// pushUntilBar types lines into a pipe until there is a progress line. It returns how many.
func (term *fakeTerminal) pushUntilBar(p *process, r *relay) int {
	term.t.Helper()
	for n := 1; ; n++ {
		p.write("line\n")
		r.forward(r.next())
		if bar := regexp.MustCompile(`items, `); bar.MatchString(term.output.String()) {
			return n
		}
	}
}

var summary = regexp.MustCompile(`^([0-9,]+) items? pushed to jobs in [0-9.]+ s$`)

// startLines pushes n lines, until a terminal shows a progress bar.
func startLines(t *testing.T) (p *process, r *relay, term *fakeTerminal, n int) {
	c, r := newRelay(t)
	term = newTerminal(t, 80)
	p = term.start(c, nil, "push", "jobs", "--lines", "--prefix", "relay")
	n = term.pushUntilBar(p, r)
	return p, r, term, n
}

func TestLinesOnATerminal(t *testing.T) {
	p, _, term, n := startLines(t)
	must(t, p.stdin.Close())
	p.ends(exitOK)
	term.sees("pushed")
	lines := term.screen()
	if m := summary.FindStringSubmatch(lines[0]); len(lines) != 2 || m == nil || m[1] != terminal.Grouped(int64(n)) {
		t.Errorf("pushed %d lines, the screen shows %q", n, lines)
	}
}

// A failure shows which lines are in the queue, and leaves no bar behind.
func TestFailureOnATerminal(t *testing.T) {
	p, r, term, n := startLines(t)
	p.write("line\n")
	r.fail(r.next(), false)
	p.ends(exitError)
	term.sees("$p'\r\n")
	term.shows(
		fmt.Sprintf("pq: line %d: made up (503)", n+1),
		"pq: lines in the queue: "+strings.TrimSuffix(fmt.Sprintf("1-%d", n), "-1"),
		fmt.Sprintf("pq: lines not in the queue: sed -n '%d,$p'", n+1),
	)
}

func TestInterruptOnATerminal(t *testing.T) {
	p, r, term, n := startLines(t)
	p.write("line\n")
	last := r.next()
	if _, err := term.keys.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	term.sees(finishing)
	r.forward(last)
	p.ends(exitSignal + int(syscall.SIGINT))
	term.sees("$p'\r\n")
	term.shows(
		"pq: stopped by a signal (interrupt): "+finishing+"; another signal ends pq at once, and "+pushInterrupted,
		"pq: stopped by a signal (interrupt)",
		fmt.Sprintf("pq: lines in the queue: 1-%d", n+1),
		fmt.Sprintf("pq: lines not in the queue: sed -n '%d,$p'", n+2),
	)
}

// Ids are printed for scripts, and for lines that somebody types.
func TestIDsInsteadOfProgress(t *testing.T) {
	c, _ := newCLI(t)
	id := regexp.MustCompile(`\b[A-Za-z0-9_-]{24,36}\b`)
	input := func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("a\nb\n") }

	var piped harness.Transcript
	term := newTerminal(t, 80)
	p := term.start(c, func(cmd *exec.Cmd) {
		input(cmd)
		cmd.Stdout, cmd.SysProcAttr.Ctty = &piped, 2
	}, "push", "jobs", "--lines")
	p.ends(exitOK)
	if got := piped.String(); len(id.FindAllString(got, -1)) != 2 || strings.Count(got, "\n") != 2 {
		t.Errorf("into a pipe: %q, want two ids", got)
	}
	if got := term.output.String(); got != "" {
		t.Errorf("into a pipe: standard error %q", got)
	}

	p = term.start(c, input, "push", "jobs", "--lines", "--json")
	p.ends(exitOK)
	term.sees(`"line":2`)

	term = newTerminal(t, 80)
	p = term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device }, "push", "jobs")
	term.sees("pq: reading the value from the terminal: Ctrl-D at the beginning of a line ends it")
	if _, err := term.keys.WriteString("typed\n\x04"); err != nil { // Ctrl-D
		t.Fatal(err)
	}
	p.ends(exitOK)

	term = newTerminal(t, 80)
	p = term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device }, "push", "jobs", "--lines")
	if _, err := term.keys.WriteString("a\nb\n\x04"); err != nil { // Ctrl-D
		t.Fatal(err)
	}
	p.ends(exitOK)
	testenv.Eventually(t, func() error {
		if got := term.output.String(); len(id.FindAllString(got, -1)) != 2 {
			return fmt.Errorf("typed: %q, want two ids", got)
		}
		return nil
	})
}
