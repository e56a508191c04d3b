package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// lease leases the first item of a queue, for longer than any test takes, and returns its receipt
// and its value.
func (c *cli) lease(args ...string) (receipt, value string) {
	c.t.Helper()
	receipt, value, found := strings.Cut(c.ok("",
		append([]string{"lease", "--ack-wait", "1h"}, args...)...), "\n")
	if !found {
		c.t.Fatalf("no receipt in %q", receipt)
	}

	return receipt, value
}

// A receipt extends, acknowledges or gives back a leased item until that is settled.
func TestLeaseAndSettle(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("two\nlines", "push", "jobs", "-H", "Trace:abc")

	receipt, value := c.lease("jobs")
	if value != "two\nlines" {
		t.Errorf("leased %q", value)
	}

	until, err := time.Parse(subjects.TimeLayout+"\n", c.ok("", "extend", receipt))
	if left := time.Until(until); err != nil || left < 50*time.Minute {
		t.Errorf("extended to %v, %v", until, err)
	}

	c.ok("", "nak", receipt, "--delay", "0s")
	c.fails(exitError, "the lease is lost or the item is settled (409): it was acknowledged, "+
		"given back", "ack", receipt)

	it := c.item("lease", "jobs", "--ack-wait", "1h")
	if it.Deliveries != 2 || it.LeaseUntil == "" || *it.Value != "two\nlines" ||
		it.Headers.Get("Trace") != "abc" {
		t.Errorf("leased %+v", it)
	}

	c.ok("", "nak", it.Receipt, "--snooze")
	receipt, _ = c.lease("jobs", "--max")
	c.ok("", "nak", receipt, "--reason", "disk full")
	receipt, _ = c.lease("jobs")

	c.fails(exitEmpty, "the queue is empty", "lease", "jobs")
	c.findsNothing("lease", "jobs", "--wait", "20ms")

	c.ok("", "ack", receipt)
	c.prints("", "ls")

	c.ok("", "push", "--fifo", "mail", "x")
	receipt, _ = c.lease("--fifo", "mail")
	c.ok("", "term", receipt, "no such user")
	c.prints("x", "peek", "--fifo", "mail-dead")
}

// A receipt is where a message goes, so nothing else is taken for one.
func TestReceiptsThatAreNone(t *testing.T) {
	c, _ := newCLI(t)
	for _, receipt := range []string{
		"x", "pq.jobs.purge", "orders.new", "pq.jobs.ack.*", "q.list", "_R_.>",
	} {
		for _, verb := range []string{"ack", "nak", "term", "extend"} {
			c.fails(exitUsage, "is not a receipt: want one that pq lease printed, such as "+
				"pq.jobs.ack.TOKEN", verb, receipt)
		}
	}
	c.fails(exitError, "(4", "ack", receiptExample)
}

// An item whose lease cannot be printed is nobody's, so it goes back, uncounted.
func TestLeaseThatCannotBePrinted(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "precious")
	const words = "cannot print the leased item (the disk is full): it was given back"

	stderr, code := c.runOn(nil, &fullDisk{}, "lease", "jobs")
	if code != exitError || !strings.Contains(stderr, words) {
		t.Errorf("exit code %d, %q", code, stderr)
	}

	it := c.item("lease", "jobs")
	if it.Deliveries != 1 {
		t.Errorf("leased %+v", it)
	}
}

// A push with the same message id or unique key prints the id of the item that is there.
func TestPushOptions(t *testing.T) {
	c, _ := newCLI(t)
	id := c.ok("", "push", "jobs", "a", "--msg-id", "1", "--ttl", "1h", "--delay", "1h")
	if again := c.ok("", "push", "jobs", "b", "--msg-id", "1"); again != id {
		t.Errorf("pushed %q and %q", id, again)
	}

	id = c.ok("", "push", "jobs", "c", "--unique", "key", "--ttl", "0")
	if again := c.ok("", "push", "jobs", "d", "--unique", "key"); again != id {
		t.Errorf("pushed %q and %q", id, again)
	}

	c.prints("pq\tjobs\t1\t0\t1\n", "ls")
	it := c.item("pop", "jobs")
	if it.Headers.Get(subjects.HeaderTTL) != "never" {
		t.Errorf("popped %+v", it)
	}
}
