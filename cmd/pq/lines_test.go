package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// What arrives together is pushed in one request, which counts as a whole. One
// that fails is the last.
func TestBatchesOfLines(t *testing.T) {
	c, r := newRelay(t)
	for _, m := range []struct {
		unknown bool
		words   string
	}{
		{false, "\npq: lines in the queue: 1-1000\npq: lines not in the queue: sed -n '1001,$p'\n"},
		{true, "\npq: lines in the queue: 1-1000\npq: lines that may be in the queue: " +
			"1001-1003\npq: lines not in the queue: sed -n '1004,$p'\n"},
	} {
		p := c.start(nil, "push", "jobs", "--lines", "--prefix", "relay")
		p.write(strings.Repeat("x\n", 1000))
		r.forward(r.next())
		p.write("a\nb\nc\n")

		batch := r.next()
		if batch.Subject != "relay.jobs.push.batch" {
			t.Errorf("request on %s", batch.Subject)
		}

		p.write("d\ne\n")
		r.fail(batch, m.unknown)
		p.ends(exitError)

		if len(r.requests) > 0 {
			t.Error("lines were pushed after some that failed")
		}

		p.says("pq: line 1001: made up (503)", m.words)
		if got := len(strings.Fields(p.stdout.String())); got != 1000 {
			t.Errorf("printed %d ids", got)
		}

		c.prints("1000\n", "purge", "jobs", "--yes")
	}
}

// Pq stops reading once the input is too large to push.
func TestInputThatIsTooLarge(t *testing.T) {
	c, _ := newCLI(t)
	const max = 1 << 20

	for _, s := range []struct{ args, words string }{
		{
			"push jobs",
			"standard input: the message is too large: the NATS server takes 1048576 bytes at most",
		},
		{"push jobs -", "standard input: the message is too large"},
		{
			"push jobs --lines",
			"line 3: the message is too large: the NATS server takes 1048576 bytes at most",
		},
	} {
		endless := strings.NewReader(strings.Repeat("x", 8*max))
		stderr, code := c.runOn(io.MultiReader(strings.NewReader("a\nb\n"), endless), io.Discard,
			strings.Fields(s.args)...)
		if code != exitError || !strings.Contains(stderr, s.words) {
			t.Errorf("pq %s: %s, want words %q", s.args, stderr, s.words)
		}
		if endless.Len() < 6*max {
			t.Errorf("pq %s left only %d bytes", s.args, endless.Len())
		}
		if strings.Contains(s.args, "lines") && !strings.Contains(stderr,
			"lines in the queue: 1-2\npq: lines not in the queue: sed -n '3,$p'\n") {
			t.Errorf("pq %s: %s", s.args, stderr)
		}
	}

	c.prints("a\nb\n", "pop", "jobs", "--all")
	// The largest values that fit.
	largest := strings.Repeat("x", max)
	c.ok(largest, "push", "jobs")
	c.ok(largest+"\n"+largest, "push", "jobs", "--lines")
	c.prints("3\n", "len", "jobs")
	c.ok("a\r\n\rb", "push", "some", "--lines") // only a line feed ends a line
	c.prints("a\r\n\rb\n", "pop", "some", "--all")

	// Of input that breaks, part of a line is not pushed.
	in := io.MultiReader(strings.NewReader("whole\nhal"), iotest.ErrReader(errors.New("bad disk")))
	stderr, code := c.runOn(in, io.Discard, "push", "some", "--lines")
	if code != exitError || !strings.Contains(stderr, "standard input, after line 1: bad disk") {
		t.Errorf("exit code %d, %s", code, stderr)
	}

	c.prints("whole\n", "pop", "some", "--all")
}
