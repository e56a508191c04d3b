package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/nats-io/nats.go"
)

// TestWhichLinesAreIn makes pushes fail in every way, several at once.
func TestWhichLinesAreIn(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "push", "jobs", "--lines", "--parallel", "3", "--prefix", "relay", "--json")
	held := map[string]*nats.Msg{}
	for _, n := range []string{"1", "2", "3"} { // each by itself, so not in a batch
		p.write(n + "\n")
		held[n] = r.next()
		if string(held[n].Data) != n {
			t.Fatalf("request %q, want line %s", held[n].Data, n)
		}
	}
	p.write("4\n")
	r.forward(held["1"])
	fourth := r.next()
	p.write("5\n")
	r.forward(fourth)
	fifth := r.next()
	p.sees(&p.stdout, `"line":4`)
	r.forward(fifth)
	p.write("6\n")
	sixth := r.next()
	p.write("7\n8\n") // they wait for their turn, or for being read
	p.sees(&p.stdout, `"line":5`)
	// All that is under way fails, so that no reply makes room for the seventh before a failure is
	// seen.
	r.fail(held["2"], false)
	r.fail(held["3"], true)
	r.fail(sixth, false)
	p.ends(exitError)
	p.says(": made up (503)", // of whichever reply comes first
		"\npq: lines in the queue: 1,4-5\n",
		"\npq: lines that may be in the queue: 3\n",
		"\npq: lines not in the queue: sed -n '2p;6,$p'\n")

	var lines []int
	for text := range strings.Lines(p.stdout.String()) {
		var stored pushed
		decode(t, text, &stored)
		lines = append(lines, stored.Line)
	}
	slices.Sort(lines)
	if !slices.Equal(lines, []int{1, 4, 5}) {
		t.Errorf("lines %v are printed with ids", lines)
	}
	if got := len(strings.Fields(c.ok("", "pop", "jobs", "--all"))); got != 3 {
		t.Errorf("%d items are in the queue, want 3", got)
	}
}

// TestBatchesOfLines: what arrives together is pushed in one request, which counts as a whole. Without
// --parallel, one that fails is the last.
func TestBatchesOfLines(t *testing.T) {
	c, r := newRelay(t)
	for _, m := range []struct {
		unknown bool
		words   string
	}{
		{false, "\npq: lines in the queue: 1-1000\npq: lines not in the queue: sed -n '1001,$p'\n"},
		{true, "\npq: lines in the queue: 1-1000\npq: lines that may be in the queue: 1001-1003\npq: lines not in the queue: sed -n '1004,$p'\n"},
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

// TestInputThatIsTooLarge: pq stops reading once the input is too large to push.
func TestInputThatIsTooLarge(t *testing.T) {
	c, _ := newCLI(t)
	const max = 1 << 20
	for _, s := range []struct{ args, words string }{
		{"push jobs", "standard input: the message is too large: the NATS server takes 1048576 bytes at most"},
		{"push jobs -", "standard input: the message is too large"},
		{"push jobs --lines", "line 3: the message is too large: the NATS server takes 1048576 bytes at most"},
	} {
		endless := strings.NewReader(strings.Repeat("x", 8*max))
		stderr, code := c.runOn(io.MultiReader(strings.NewReader("a\nb\n"), endless), io.Discard, strings.Fields(s.args)...)
		if code != exitError || !strings.Contains(stderr, s.words) {
			t.Errorf("pq %s: %s, want words %q", s.args, stderr, s.words)
		}
		if endless.Len() < 6*max {
			t.Errorf("pq %s left only %d bytes", s.args, endless.Len())
		}
		if strings.Contains(s.args, "lines") && !strings.Contains(stderr, "lines in the queue: 1-2\npq: lines not in the queue: sed -n '3,$p'\n") {
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

func TestNumbersAreDecimal(t *testing.T) {
	c, _ := newCLI(t)
	for text, want := range map[string]int64{"010": 10, "-010": -10, "-9223372036854775808": -1 << 63} {
		c.ok("", "push", "jobs", "x", "--priority", text)
		if it := c.item("pop", "jobs"); *it.Priority != want {
			t.Errorf("-p %s pushed %+v", text, it)
		}
	}
	for _, text := range []string{"0x10", "1_000", "0o7", "+5", "1e3", "", "9223372036854775808"} {
		c.fails(exitUsage, "priority", "push", "jobs", "x", "-p", text)
	}
	c.fails(exitUsage, "number", "pop", "jobs", "-n", "0x10")
	// A header can set the priority, too.
	c.ok("x\n", "push", "jobs", "--lines", "-H", "Pq-Priority: -7")
	if it := c.item("pop", "jobs"); *it.Priority != -7 || len(it.Headers) > 0 {
		t.Errorf("popped %+v, want priority -7", it)
	}
	c.ok(strings.Repeat("x\n", 20), "push", "many", "--lines", "--parallel", "010")
	c.prints(strings.Repeat("x\n", 10), "pop", "many", "-n", "010")
}
