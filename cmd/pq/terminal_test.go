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
	"testing"

	"github.com/creack/pty"

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

// screen returns the visible lines, without the blanks at their ends.
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

// shows checks the screen, line by line.
func (term *fakeTerminal) shows(lines ...string) {
	term.t.Helper()
	if got := term.screen(); !slices.Equal(got, append(lines, "")) {
		term.t.Errorf("the screen shows %q, want %q", got, lines)
	}
}

// Ids are printed for scripts; a terminal shows how many there were.
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
	term.start(c, input, "push", "jobs", "--lines").ends(exitOK)
	term.sees("2 items pushed to jobs in ")

	term = newTerminal(t, 80)
	p = term.start(c, func(cmd *exec.Cmd) { cmd.Stdin = term.device }, "push", "jobs")
	term.sees("pq: reading the value from the terminal: Ctrl-D at the beginning of a line ends it")

	if _, err := term.keys.WriteString("typed\n\x04"); err != nil { // Ctrl-D
		t.Fatal(err)
	}

	p.ends(exitOK)
}
