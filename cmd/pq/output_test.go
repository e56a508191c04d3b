package main

import (
	"errors"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestOutputThatCannotBeWritten: pq pops nothing if it knows that it cannot print.
func TestOutputThatCannotBeWritten(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "precious")
	c.ok("", "push", "--fifo", "jobs", "precious")
	redirections := map[string]string{
		">&-":          "standard output: it is closed",
		"1<>/dev/null": "standard output: it is closed, or the null device",
		"1</dev/null":  "bad file descriptor",
		">&- 2>&-":     "",
	}
	if runtime.GOOS == "linux" { // other systems have no such device
		redirections[">/dev/full"] = "no space left on device"
	}
	for redirection, words := range redirections {
		for _, args := range []string{"pop jobs", "pop jobs --all", "pop jobs --json", "pop --fifo jobs"} {
			p := c.start(shell("", redirection), strings.Fields(args)...)
			p.ends(exitError)
			p.says(words)
		}
	}
	for _, args := range []string{"pop jobs", "pop --fifo jobs"} {
		// The items are still there, and can be discarded.
		c.start(shell("", ">/dev/null"), strings.Fields(args)...).ends(exitOK)
		c.fails(exitEmpty, "empty", strings.Fields(args)...)
	}
}

func TestInputThatIsClosed(t *testing.T) {
	c, _ := newCLI(t)
	for _, args := range []string{"push jobs", "push jobs -", "push jobs --lines"} {
		p := c.start(shell("", "<&-"), strings.Fields(args)...)
		p.ends(exitError)
		p.says("standard input: it is closed")
	}
	c.start(shell("", "<&-"), "push", "jobs", "no input needed").ends(exitOK)
	c.start(shell("", "</dev/null"), "push", "jobs").ends(exitOK)
	c.prints("2\n", "len", "jobs")
}

// TestReaderGoes is pq pop --all | head -1, with items larger than the pipe's
// buffer.
func TestReaderGoes(t *testing.T) {
	const size = 200_000
	c, _ := newCLI(t)
	want := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		want[name] = strings.Repeat(name, size)
		c.ok(want[name], "push", "jobs")
	}
	p, r := c.startPiped("pop", "jobs", "--all")
	first := make([]byte, size+1)
	if _, err := io.ReadFull(r, first); err != nil || string(first) != want["a"]+"\n" {
		t.Errorf("read %.9q..., %v", first, err)
	}
	must(t, r.Close())
	p.ends(exitError)
	p.says("broken pipe", "it was put back with the id ", "behind the others of its priority")
	c.prints(want["c"]+"\n"+want["b"]+"\n", "pop", "jobs", "--all")
}

// fullDisk fails after some writes.
type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.left == 0 {
		return len(b) / 2, errors.New("the disk is full")
	}
	d.left--
	return len(b), nil
}

// popTo runs pq pop with an output that fails after a number of items, and returns
// its standard error.
func (c *cli) popTo(items int, args ...string) string {
	c.t.Helper()
	stderr, code := c.runOn(nil, &fullDisk{items}, append([]string{"pop", "jobs"}, args...)...)
	if code != exitError {
		c.t.Errorf("exit code %d, %s", code, stderr)
	}
	return stderr
}

var idPutBack = regexp.MustCompile(`put back with the id (\S+), `)

func TestItemThatCannotBePrintedIsPutBack(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("\x00\xff", "push", "jobs", "-p", "-7", "-H", "Trace:abc", "-H", "Trace:def")
	for _, value := range []string{"x", "y"} {
		c.ok("", "push", "jobs", value, "-p", "-7")
	}
	problems := c.popTo(0, "--json")
	if !strings.Contains(problems, "the disk is full") {
		t.Errorf("standard error %q", problems)
	}
	c.prints("x\ny\n", "pop", "jobs", "-n", "2")
	again := c.item("pop", "jobs")
	id := idPutBack.FindStringSubmatch(problems)
	if id == nil || again.ID != id[1] || string(again.Base64) != "\x00\xff" || *again.Priority != -7 ||
		!slices.Equal(again.Headers["Trace"], []string{"abc", "def"}) || len(again.Headers) != 1 {
		t.Errorf("put back %+v, announced %q", again, problems)
	}
	c.fails(exitEmpty, "empty", "pop", "jobs")
}

func TestFIFOItemThatCannotBePrintedIsPutBack(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "--fifo", "jobs", "--lines", "-H", "Trace:abc")
	if problems := c.popTo(1, "--fifo", "--all"); !strings.Contains(problems, "at the end of the queue") {
		t.Errorf("standard error %q", problems)
	}
	c.prints("c", "pop", "--fifo", "jobs", "-n", "1")
	again := c.item("pop", "--fifo", "jobs")
	if *again.Value != "b" || again.Headers.Get("Trace") != "abc" {
		t.Errorf("put back %+v", again)
	}
}

// TestItemThatCannotBePutBack: the item is printed on standard error.
func TestItemThatCannotBePutBack(t *testing.T) {
	for unknown, words := range map[bool]string{
		false: "it could not be put back (made up (503)): it is printed above",
		true:  "it may or may not have been put back",
	} {
		c, r := newRelay(t)
		c.ok("", "push", "jobs", "precious", "-p", "3")
		problems := make(chan string)
		go func() { problems <- c.popTo(0, "--prefix", "relay") }()
		r.forward(r.next())
		r.fail(r.next(), unknown)
		text := <-problems
		line, rest, _ := strings.Cut(text, "\n")
		var lost item
		decode(t, line, &lost)
		if *lost.Value != "precious" || *lost.Priority != 3 || !strings.Contains(rest, words) {
			t.Errorf("standard error %q: want the item, and words %q", text, words)
		}
	}
}

// TestRepliesThatCannotBeReceived: pq pops nothing if it cannot receive replies.
func TestRepliesThatCannotBeReceived(t *testing.T) {
	c := newCLIWith(t, map[string]*server.Permissions{
		"deaf": {Subscribe: &server.SubjectPermission{Allow: []string{"nothing", "_INBOX.*", "_INBOX_deaf.>"}}},
	})
	c.ok("", "push", "jobs", "precious")
	c.fails(exitError, "cannot receive replies", "--user", "deaf", "--password", "deaf", "pop", "jobs")
	c.fails(exitError, "with --inbox-prefix", "--user", "deaf", "--password", "deaf", "pop", "jobs")
	for _, bad := range []string{"_INBOX_deaf.", "_INBOX_deaf.>", "a b", "*", "."} {
		c.fails(exitUsage, "without wildcards, such as", "--inbox-prefix", bad, "pop", "jobs")
	}
	c.prints("precious", "--inbox-prefix", "_INBOX_deaf", "--user", "deaf", "--password", "deaf", "pop", "jobs")
	contexts := newContexts(t)
	contexts.save("deaf", map[string]any{"url": c.server, "user": "deaf", "password": "deaf", "inbox_prefix": "_INBOX_deaf"})
	bare := &cli{t: t}
	bare.ok("", "len", "jobs")
	bare.fails(exitError, "", "len", "jobs", "--inbox-prefix", "_INBOX") // not that of the context
}
