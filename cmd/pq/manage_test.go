package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leased leases the first item of a queue, for longer than any test takes.
func (c *cli) leased(queue string) *client.Delivery {
	c.t.Helper()
	jobs := client.New(c.conn(), client.WithTimeout(testenv.Patience)).PriorityQueue(queue)
	d, err := jobs.Lease(context.Background(), client.AckWait(time.Hour))
	must(c.t, err)

	return d
}

// pq ls prints the items of each queue by state.
func TestLs(t *testing.T) {
	c, _ := newCLI(t)
	c.prints("", "ls")
	c.ok("a\nb\n", "push", "jobs", "--lines")
	c.ok("", "push", "jobs", "later", "-H", "Pq-Delay:1h")
	c.leased("jobs")
	c.ok("", "push", "--fifo", "mail", "x")
	c.prints("pq\tjobs\t1\t1\t1\nq\tmail\t1\t0\t0\n", "ls")
	c.prints(`{"kind":"q","queue":"mail","ready":1,"leased":0,"delayed":0}`+"\n", "ls", "--fifo",
		"--json")
}

// pq info says what the bridges have counted of the queue, and since when if they have started
// lately. If it may not ask, or a bridge does not know, it says so, and prints all else.
func TestInfoShowsTraffic(t *testing.T) {
	t.Parallel()

	c := newCLIWith(t, map[string]*server.Permissions{"me": publish(nil, []string{"$SRV.STATS.>"})})
	c.ok(strings.Repeat("x\n", 1003), "push", "jobs", "--lines")
	c.ok("", "pop", "jobs")
	c.leased("jobs")

	got := c.ok("", "info", "jobs")
	for _, line := range []string{
		"waiting     0 pops\n",
		"last hour   1,003 pushed, 1 popped, 0 failed, 0 dead\n",
		"last day    1,003 pushed, 1 popped, 0 failed, 0 dead\ncounted     since 20",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("printed %q, want %q", got, line)
		}
	}

	got = c.ok("", "info", "jobs", "--user", "me", "--password", "me")
	if !strings.Contains(got, "ready       1,001\n") ||
		!strings.Contains(got, "\ntraffic     cannot be read: ") {
		t.Errorf("printed %q", got)
	}

	got = c.ok("", "info", "jobs", "--json", "--user", "me", "--password", "me")
	if strings.Contains(got, "traffic") {
		t.Errorf("printed %q", got)
	}
}

// pq info prints the counts, priorities, groups and settings of a queue, each in one line.
func TestInfo(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a", "-p", "7")
	c.ok("", "config", "jobs", "max_deliver=5", "ack_wait=1m")
	got := c.ok("", "info", "jobs")

	for _, line := range []string{
		"ready       1\n", "leased      0\n", "oldest      ", "priorities  7: 1\n",
		"settings    ack_wait=1m0s\n            max_deliver=5\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("printed %q, want %q", got, line)
		}
	}

	got = c.ok("", "info", "jobs", "--json")
	traffic := `"settings":{"ack_wait":"1m0s","max_deliver":5},"traffic":{"waiting":0,` +
		`"hour":{"pushed":1,"popped":0,"failed":0,"dead":0},` +
		`"day":{"pushed":1,"popped":0,"failed":0,"dead":0},"since":"20`
	if !strings.Contains(got, `"ready":1,`) || !strings.Contains(got, traffic) {
		t.Errorf("printed %s", got)
	}

	// A queue with many priorities has one line for them.
	many := &client.QueueInfo{}
	for p := range int64(100) {
		many.Priorities = append(many.Priorities, subjects.PriorityCount{Priority: p, Count: 1000})
	}

	text := infoText(many, time.Now())
	if !strings.Contains(text, "0: 1,000, 1: 1,000") {
		t.Errorf("%q", text)
	}

	// And for many groups, those with the most first.
	few := &client.QueueInfo{
		Groups: map[string]subjects.GroupCount{
			"b":   {Ready: 1},
			"a\n": {Ready: 2000, Leased: 2},
		},
		GroupsAtLimit: 1,
	}
	if text := infoText(few, time.Now()); !strings.Contains(text,
		"groups      a\\n: 2,000 (2 leased), b: 1\npassed over 1 group\n") {
		t.Errorf("%q", text)
	}

	many.Groups, many.GroupsMore = map[string]subjects.GroupCount{}, true
	for i := range 100 {
		many.Groups[fmt.Sprint("group ", i)] = subjects.GroupCount{Ready: 1}
	}
	if text = infoText(many, time.Now()); !strings.Contains(text, " and others\n") {
		t.Errorf("%q", text)
	}

	for line := range strings.Lines(text) {
		if len(line) > 81 ||
			strings.HasPrefix(line, "priorities") && !strings.HasSuffix(line, " and others\n") {
			t.Errorf("%q", line)
		}
	}
}

// pq config changes the settings that it names, and prints all that are set.
func TestConfig(t *testing.T) {
	c, _ := newCLI(t)
	c.prints("backoff=1s,10s\nmax_deliver=5\n", "config", "jobs", "backoff=1s,10s", "max_deliver=5")
	c.prints(`{"backoff":["1s","10s"]}`+"\n", "config", "jobs", "max_deliver=", "--json")
	c.prints("backoff=1s,10s\n", "config", "jobs")
	c.ok("", "config", "--fifo", "jobs", "ttl=1h")
	c.ok("", "push", "used", "x")

	for _, args := range []string{
		"config jobs backoff=", "config jobs max_deliver=", "config used",
	} {
		stdout, stderr, code := c.run("", strings.Fields(args)...)
		if stdout != "" || code != exitOK ||
			!strings.HasSuffix(stderr, " has no settings: the defaults are in force\n") {
			t.Errorf("pq %s: %q, %q, exit code %d", args, stdout, stderr, code)
		}
	}
}

// Pops find nothing in a paused queue or group until it is resumed.
func TestPauseAndResume(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a")

	for _, flags := range [][]string{nil, {"--for", "1h"}} {
		c.ok("", append([]string{"pause", "jobs"}, flags...)...)
		c.fails(exitEmpty, "the queue is paused until", "pop", "jobs")
		c.ok("", "resume", "jobs")
	}

	c.prints("a", "pop", "jobs")

	c.ok("", "push", "jobs", "urgent", "--group", "acme", "-p", "1")
	c.ok("", "push", "jobs", "other", "--group", "b\x1b,c", "-p", "2")
	c.prints("paused_groups=acme\n", "pause", "jobs", "--group", "acme")
	c.prints("paused_groups=acme\n", "pause", "jobs", "--group", "acme") // twice is once
	c.prints("other", "pop", "jobs")

	c.fails(exitEmpty, "the groups of the ready items are paused", "pop", "jobs")

	// Others of a group whose name is right may come later. One that is misspelt goes on.
	stdout, stderr, code := c.run("", "pause", "jobs", "--group", "b\x1b,c")
	if stdout != `paused_groups=["acme","b\u001b,c"]`+"\n" ||
		stderr != "pq: no item of this group is ready or leased in jobs now\n" || code != exitOK {
		t.Errorf("printed %q, %q, exit code %d", stdout, stderr, code)
	}
	c.fails(exitError, `pq: "acm" is not among the paused groups of jobs, which are: acme, b.,c`+
		"\n", "resume", "jobs", "--group", "acm")

	c.prints(`paused_groups=["acme","b\u001b,c"]`+"\n", "config", "jobs")
	c.ok("", "resume", "jobs", "--group", "b\x1b,c")
	c.prints("paused_groups=acme\n", "config", "jobs")
	c.ok("", "resume", "jobs", "--group", "acme")
	c.prints("urgent", "pop", "jobs")

	c.fails(exitError, "queue jobs is not in use", "resume", "jobs", "--group", "acme")

	c.ok("", "push", "jobs", "x")
	c.fails(exitError, "which are: none\n", "resume", "jobs", "--group", "acme")
	c.fails(exitUsage, "leave out --for", "pause", "jobs", "--group", "acme", "--for", "1h")
	c.fails(exitUsage, "--group is empty", "pause", "jobs", "--group", "")
	c.fails(exitUsage, "--group: a group \" acme\": want 1 to 128 bytes", "pause", "jobs",
		"--group", " acme")

	for _, command := range []string{"pause", "resume"} {
		c.fails(exitUsage, `--group: a group "\xff": want 1 to 128 bytes of UTF-8`, command, "jobs",
			"--group", "\xff")
	}

	c.prints("ttl=1h0m0s\n", "config", "jobs", "ttl=1h")
}

// Items are printed, ranked, moved and removed by their ids.
func TestItemsByID(t *testing.T) {
	c, _ := newCLI(t)
	push := func(args ...string) string {
		return strings.TrimSpace(c.ok("", append([]string{"push", "jobs"}, args...)...))
	}
	first, second := push("first", "-p", "1"), push("second", "-p", "2", "-H", "Pq-Delay:1h")
	c.prints("first", "get", "jobs", first)

	it := c.item("get", "jobs", second)
	if it.ID != second || it.State != client.Delayed || *it.Value != "second" || *it.Priority != 2 {
		t.Errorf("printed %+v", it)
	}

	third := push("third", "-p", "3")
	c.prints("1\n", "rank", "jobs", third)
	c.prints(`{"rank":0,"at_least":false}`+"\n", "rank", "jobs", third, "--max", "--json")
	c.prints(third+"\n", "mv", "jobs", third, "-3")
	c.prints("0\n", "rank", "jobs", third)
	var reply map[string]any
	decode(t, c.ok("", "mv", "jobs", third, "4", "--json"), &reply)

	place, _ := reply["place"].(string)
	if reply["id"] != third || c.item("get", "jobs", third).Place != place {
		t.Errorf("moved: %v", reply)
	}
	c.prints("third", "get", "jobs", place)
	c.fails(exitEmpty, "no item has this id", "mv", "jobs", "--by-place", third, "4")
	c.prints(third+"\n", "mv", "jobs", "--by-place", place, "4")
	c.fails(exitEmpty, "no item has this id", "mv", "jobs", "--by-place", place, "-3")
	c.fails(exitEmpty, "no item has this id", "redrive", "jobs", "--by-place", third)
	c.fails(exitUsage, "want some, or leave it out", "redrive", "jobs", "--by-place")

	paid := push("paid", "--msg-id", "invoice-17")
	c.prints("paid", "get", "jobs", "--msg-id", "invoice-17")
	c.fails(exitEmpty, "no item has this id", "get", "jobs", "--msg-id", "invoice-18")
	c.fails(exitUsage, "leave out one of them", "get", "jobs", paid, "--msg-id", "invoice-17")
	c.fails(exitUsage, "want an ID or --msg-id", "get", "jobs")
	c.ok("", "rm", "jobs", paid)

	c.ok("", "rm", "jobs", first, second)
	c.fails(exitEmpty, "pq: "+first+": no item has this id\npq: not removed: 1 of 2 items\n",
		"rm", "jobs", first, third)

	c.ok("", "push", "jobs", "a")
	d := c.leased("jobs")
	c.fails(exitError, "pq: the item is leased (409)\n", "mv", "jobs", d.ID, "3")

	id := strings.TrimSpace(c.ok("", "push", "--fifo", "mail", "x"))
	c.prints("0\n", "rank", "--fifo", "mail", id)
	c.prints("x", "get", "--fifo", "mail", id)
	c.prints("", "rm", "--fifo", "mail", id)
}

// Purge and redrive need --yes where nobody can be asked, and print how many items they took.
func TestPurgeAndRedrive(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "jobs", "--lines")

	for range 2 {
		must(t, c.leased("jobs").Term(context.Background(), ""))
	}
	c.fails(exitUsage, "there is no terminal to ask on: add --yes", "redrive",
		"jobs-dead")
	c.fails(exitUsage, "there is no terminal to ask on: add --yes", "purge",
		"jobs")

	for _, args := range [][]string{ // a script whose variable is empty
		{"purge", "jobs", "--state", "", "--yes"},
		{"dead", "jobs", "--error", ""},
		{"items", "jobs", "--after="},
	} {
		c.fails(exitUsage, "is empty: give it a value, or leave it out", args...)
	}

	// It may have dead letters of others as well.
	const where = "pq: the dead letters of jobs are in jobs-dead: pq redrive jobs-dead\n"
	c.fails(exitEmpty, where, "redrive", "jobs", "--error", "term", "--yes")
	c.fails(exitUsage, where, "redrive", "jobs")
	c.fails(exitEmpty, "no item has this id", "redrive", "jobs", someID)

	if stdout, stderr, code := c.run("", "redrive", "jobs", "--yes"); stdout != "0\n" ||
		code != exitOK ||
		stderr != where+"pq: jobs has no dead letters: pq dead lists those there are, by the "+
			"queues they are in\n" {
		t.Errorf("printed %q, %q, exit code %d", stdout, stderr, code)
	}

	for _, flags := range [][]string{nil, {"--by", "cause"}} {
		_, stderr, code := c.run("", append([]string{"dead", "jobs-dead"}, flags...)...)
		if code != exitOK ||
			stderr != "pq: jobs-dead holds the dead letters of jobs: pq dead jobs lists them\n" {
			t.Errorf("%q: %q, exit code %d", flags, stderr, code)
		}
	}

	c.prints("1\n", "redrive", "jobs-dead", "--max", "1", "--yes")
	c.prints(`{"redriven":1}`+"\n", "redrive", "jobs-dead", "--yes", "--json")
	c.ok("", "push", "jobs", "later", "-H", "Pq-Delay:1h")
	c.prints("1\n", "purge", "jobs", "--state", "delayed", "--yes")
	c.prints(`{"purged":3}`+"\n", "purge", "jobs", "--yes", "--json")
}

// A queue that is not in use may be a misspelt one, see TestEveryCommandWithAMisspeltName, or one
// of the other kind. That is no error, because queues need no creation.
func TestQueuesOfTheOtherKind(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a")
	c.ok("", "push", "--fifo", "mail", "a")

	for args, want := range map[string]string{
		"purge reports --yes": "0\npq: queue reports is not in use: pq ls lists those that are\n",
		"redrive mail --yes":  "0\npq: mail is a FIFO queue: add --fifo\n",
		"config --fifo jobs":  "pq: jobs is a priority queue: leave out --fifo\n",
	} {
		stdout, stderr, code := c.run("", strings.Fields(args)...)
		if stdout+stderr != want || code != exitOK {
			t.Errorf("pq %s: %q, %q, exit code %d; want %q", args, stdout, stderr, code, want)
		}
	}
}

// pq info lists the consumers that JetStream's programs have created.
func TestConsumers(t *testing.T) {
	info := &client.QueueInfo{
		Queue: "jobs",
		Ready: 1,
		Consumers: []subjects.QueueConsumer{
			{
				Name:          "mailer",
				Order:         "max",
				AckWait:       time.Minute,
				MaxDeliver:    5,
				MaxAckPending: 1000,
				Description:   "sends\tmail",
			},
			{Name: "plain", Order: "min"},
		},
	}

	want := "consumers   mailer: max, ack_wait=1m0s, max_deliver=5, max_ack_pending=1000, sends " +
		"mail\n            plain: min\n"
	if got := infoText(info, time.Now()); !strings.Contains(got, want) {
		t.Errorf("printed %q, want %q", got, want)
	}
}
