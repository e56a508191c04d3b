package main

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// The items are still there.
func TestOutputThatCannotBeWritten(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "precious")
	redirections := map[string]string{
		"1</dev/null": "bad file descriptor", ">&-": "standard output is closed",
	}

	if runtime.GOOS == "linux" { // other systems have no such device
		redirections[">/dev/full"] = "no space left on device"
	}

	for redirection, words := range redirections {
		p := c.start(shell("", redirection), "pop", "jobs")
		p.ends(exitError)
		p.says(words)
	}

	c.start(shell("", ">&-"), "lease", "jobs").ends(exitError)
	c.start(shell("", ">/dev/null"), "pop", "jobs").ends(exitOK)
	c.fails(exitEmpty, "empty", "pop", "jobs")
}

// pq pop --all | head -1 loses nothing: nobody knows what head has read, so each item comes back to
// its place with its id. The items are larger than the pipe's buffer.
func TestReaderGoes(t *testing.T) {
	const size = 200_000
	c, _ := newCLI(t)
	var ids []string

	for _, name := range []string{"a", "b", "c"} {
		ids = append(ids, strings.TrimSpace(c.ok(strings.Repeat(name, size), "push", "jobs")))
	}

	p, r := c.startPiped("pop", "jobs", "--all")
	first := make([]byte, size+1)
	if _, err := io.ReadFull(r, first); err != nil ||
		string(first) != strings.Repeat("a", size)+"\n" {
		t.Errorf("read %.9q..., %v", first, err)
	}
	must(t, r.Close())

	p.ends(exitError)
	p.says("cannot print (write /dev/stdout: broken pipe): 3 items went back, including " +
		"those that were printed, because perhaps nobody has read them: 1 item\n")

	for _, id := range ids {
		if it := c.item("lease", "jobs"); it.ID != id || it.Deliveries != 1 {
			t.Errorf("leased %s for the %d. time, want %s", it.ID, it.Deliveries, id)
		}
	}
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

// Printed items are removed, the others are back at their
// places.
func TestItemThatCannotBePrintedGoesBack(t *testing.T) {
	c, _ := newCLI(t)
	for _, kind := range []string{"--fifo=false", "--fifo"} {
		ids := strings.Fields(c.ok("a\nb\nc\n", "push", "jobs", "--lines", kind))
		stderr, code := c.runOn(nil, &fullDisk{1}, "pop", "jobs", "--all", kind)
		if code != exitError ||
			stderr != "pq: cannot print (the disk is full): 2 items went back\n" {
			t.Errorf("exit code %d, %q", code, stderr)
		}

		if it := c.item("peek", "jobs", kind); it.ID != ids[1] {
			t.Errorf("the first is %+v, want %s", it, ids[1])
		}

		c.prints("b\nc\n", "pop", "jobs", "--all", kind)
	}
}

// Pq says that it comes back.
func TestPrintedButNotAcknowledged(t *testing.T) {
	c, r := newRelay(t)
	c.ok("a\nb\n", "push", "jobs", "--lines")
	p := c.start(nil, "pop", "jobs", "-n", "2", "--prefix", "relay")
	r.forward(r.next())
	r.fail(r.next(), true)
	p.ends(exitError)
	p.printed("a\nb\n")
	p.says("pq: 2 items printed, but not acknowledged: they may come back within 1m0s: made up " +
		"(503): they may have been removed\n")
	c.prints("pq\tjobs\t0\t2\t0\n", "ls")
}

// Pq pops nothing if it cannot receive replies.
func TestRepliesThatCannotBeReceived(t *testing.T) {
	c := newCLIWith(t, map[string]*server.Permissions{
		"deaf": {Subscribe: &server.SubjectPermission{Allow: []string{
			"nothing", "_INBOX.*", "_INBOX_deaf.>",
		}}},
	})

	c.ok("", "push", "jobs", "precious")
	c.fails(exitError, "cannot receive replies", "--user", "deaf", "--password", "deaf", "pop",
		"jobs")
	c.fails(exitError, "with --inbox-prefix", "--user", "deaf", "--password", "deaf", "pop", "jobs")
	c.fails(exitUsage, "--inbox-prefix or the login: nats: ", "--inbox-prefix", "_INBOX_deaf.>",
		"pop", "jobs")

	c.prints("precious", "--inbox-prefix", "_INBOX_deaf", "--user", "deaf", "--password", "deaf",
		"pop", "jobs")
	contexts := newContexts(t)

	contexts.save("deaf", map[string]any{
		"url":          c.server,
		"user":         "deaf",
		"password":     "deaf",
		"inbox_prefix": "_INBOX_deaf",
	})

	bare := &cli{t: t}
	bare.ok("", "len", "jobs")
	bare.fails(exitError, "", "len", "jobs", "--inbox-prefix", "_INBOX") // not that of the context
}
