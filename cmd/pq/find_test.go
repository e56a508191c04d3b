package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// pq find finds a job wherever it is: ready, leased, dead, done and kept, or in a FIFO queue.
func TestFind(t *testing.T) {
	c, _ := newCLI(t)
	c.fails(exitEmpty, "no job with this id is in any of 0 queues", "find", someID)
	ready := c.push("a")
	fifo := strings.TrimSpace(c.ok("", "push", "--fifo", "mail", "b"))
	kept := strings.TrimSpace(c.ok("", "push", "kept", "c", "--keep", "1h"))
	finish(t, client.New(c.conn()).PriorityQueue("kept"), "ok", "")

	c.prints("pq\tjobs\tready\t"+ready+"\n", "find", ready)
	c.prints("q\tmail\tready\t"+fifo+"\n", "find", fifo)
	c.prints("pq\tkept\tdone\t"+kept+"\n", "find", kept)
	must(t, c.leased("jobs").Term(context.Background(), "no ink"))
	c.prints("pq\tjobs-dead\tready\t"+ready+"\n", "find", ready)

	it := c.item("find", ready)
	if it.Kind != "pq" || it.Queue != "jobs-dead" || it.ID != ready || it.DeadLetter == nil ||
		it.DeadLetter.Reason != "no ink" || *it.Value != "a" {
		t.Errorf("found %+v", it)
	}

	c.fails(exitEmpty, "no job with this id is in any of 3 queues", "find", someID)
	c.fails(exitError, "id", "find", "x")
	c.fails(exitUsage, "ID is missing", "find")
}

// An id finds its job among many queues.
func TestFindAmongManyQueues(t *testing.T) {
	c, _ := newCLI(t)
	q := client.New(c.conn())
	for n := range 300 {
		_, err := q.PriorityQueue(fmt.Sprint("q", n)).Push(t.Context(), 0, nil)
		must(t, err)
	}
	id := c.push("a")
	c.prints("pq\tjobs\tready\t"+id+"\n", "find", id)
}

// pq redrive with the queue that a job died in finds its dead letter, and sends back no other.
func TestRedriveByTheQueueOfTheJob(t *testing.T) {
	c, _ := newCLI(t)
	first, second := c.push("a"), c.push("b")
	for range 2 {
		must(t, c.leased("jobs").Term(context.Background(), "no ink"))
	}

	c.prints(first+"\tjobs\n", "redrive", "jobs", first)
	c.prints("a", "get", "jobs", first)
	c.prints("pq\tjobs-dead\tready\t"+second+"\n", "find", second)
	c.fails(exitEmpty, "no item has this id", "redrive", "jobs", someID)
	c.fails(exitError, "the item is not a dead letter", "redrive", "jobs", first)
	if _, stderr, _ := c.run("", "redrive", "jobs", second, someID); !strings.Contains(stderr,
		"not sent back: 1 of 2 items") {
		t.Errorf("pq redrive says %q", stderr)
	}
	c.prints("b", "get", "jobs", second)
}

// pq delete leaves nothing of a queue but its dead letters, and asks first.
func TestDelete(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "keep=7d", "max_deliver=3")
	c.ok("", "schedule", "add", "jobs", "nightly", "x", "--every", "1d")
	c.push("a")
	c.push("b")
	finish(t, c.jobs(), "ok", "")
	c.push("c")
	must(t, c.leased("jobs").Term(context.Background(), "no ink"))
	c.push("d", "--delay", "7d")

	c.fails(exitUsage, "there is no terminal to ask on: add --yes", "delete",
		"jobs")
	stdout, stderr, code := c.run("", "delete", "jobs", "--yes")
	if code != exitOK || stdout != "3\n" ||
		stderr != "pq: the dead letters of jobs stay in jobs-dead: pq delete jobs-dead\n" {
		t.Errorf("pq delete printed %q, %q, exit code %d", stdout, stderr, code)
	}

	c.prints("pq\tjobs-dead\t1\t0\t0\n", "ls")
	if _, stderr, _ := c.run("", "schedule", "ls", "jobs"); !strings.Contains(stderr,
		"is not in use") {
		t.Errorf("of a queue that was deleted, pq schedule ls says %q", stderr)
	}
	if settings, _, _ := c.run("", "config", "jobs"); settings != "" {
		t.Errorf("the settings %q stayed", settings)
	}
	c.prints(`{"deleted":1}`+"\n", "delete", "jobs-dead", "--yes", "--json")
	c.prints("", "ls")
	if _, stderr, code := c.run("", "delete", "jobs", "--yes"); code != exitOK ||
		!strings.Contains(stderr, "queue jobs is not in use") {
		t.Errorf("pq delete says %q, exit code %d", stderr, code)
	}
}

// pq done --slowest prints the jobs that took longest first.
func TestDoneSlowest(t *testing.T) {
	c, _ := newCLI(t)
	q := c.jobs()
	var ids []string
	for range 3 {
		ids = append(ids, c.push("a", "--keep", "1h"))
	}

	// They end in the order of their leases, so the first took longest.
	list, err := q.LeaseBatch(t.Context(), 3)
	must(t, err)
	for _, d := range []int{2, 1, 0} {
		must(t, list[d].Ack(t.Context()))
	}

	var got []string
	for line := range strings.Lines(c.ok("", "done", "jobs", "--slowest", "--limit", "2")) {
		got = append(got, strings.Fields(line)[0])
	}
	if want := []string{ids[0], ids[1]}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pq done --slowest printed %q: want %q", got, want)
	}
	_, stderr, _ := c.run("", "done", "other", "--slowest")
	if !strings.Contains(stderr, "is not in use") {
		t.Errorf("of an unused queue, pq done --slowest says %q", stderr)
	}
}

// pq push --type says which handler does the job.
func TestPushType(t *testing.T) {
	c, _ := newCLI(t)
	c.push("a", "--type", "email")
	if it := c.item("peek", "jobs"); it.Headers.Get("Type") != "email" {
		t.Errorf("pushed %+v: want the type email", it)
	}
	c.fails(exitUsage, "say the same thing", "push", "jobs", "a", "--type", "x", "-H", "Type:y")
}
