package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// at matches a time, as lists print it.
const at = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`

// firstColumn returns lines without what follows the first tab in each.
func firstColumn(lines string) string {
	return regexp.MustCompile(`(?m)\t.*$`).ReplaceAllString(lines, "")
}

// pushInStates pushes a leased item, a ready one and a delayed one to jobs, in this order, with the
// priorities 1 to 3, and returns their ids.
func (c *cli) pushInStates() (leased, ready, delayed string) {
	c.t.Helper()
	for _, args := range [][]string{
		{"first", "-p", "1", "-H", "X-Tenant:acme"}, {"second", "-p", "2", "-H", "X-Tenant:other"},
		{"of acme", "-p", "3", "--delay", "1h"},
	} {
		c.ok("", append([]string{"push", "jobs"}, args...)...)
	}

	c.leased("jobs")
	ids := strings.Fields(firstColumn(c.ok("", "items", "jobs")))
	return ids[0], ids[1], ids[2]
}

// pq items prints items in the order in which they would be served, or the items that its flags
// choose; with --json a long value is cut between characters. It says which flag is bad.
func TestItems(t *testing.T) {
	c, _ := newCLI(t)
	leased, ready, delayed := c.pushInStates()

	// The columns: id, priority, state, deliveries, bytes, pushed at, due, value.
	want := regexp.MustCompile("^" + leased + "\t1\tleased\t1\t5\t" + at + "\t" + at + "\tfirst\n" +
		ready + "\t2\tready\t0\t6\t" + at + "\t-\tsecond\n" + delayed + "\t3\tdelayed\t0\t7\t" +
		at + "\t" + at + "\tof acme\n$")
	if got := c.ok("", "items", "jobs"); !want.MatchString(got) {
		t.Errorf("printed %q, want %v", got, want)
	}

	for flags, want := range map[string][]string{
		"--state delayed":                  {delayed},
		"--match acme":                     {leased, delayed},
		"-H X-Tenant:acme":                 {leased},
		"--match acme -H X-Tenant:other":   nil,
		"--max":                            {delayed, ready, leased},
		"--limit 2":                        {leased, ready},
		"--after " + ready:                 {delayed},
		"--max --limit 1 --after " + ready: {leased},
	} {
		var got []string
		list := c.ok("", append([]string{"items", "jobs"}, strings.Fields(flags)...)...)
		for line := range strings.Lines(list) {
			id, _, _ := strings.Cut(line, "\t")
			got = append(got, id)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}

	// Lists show 1,024 bytes of a value. The last character of this one begins at the last of them.
	const shown = subjects.DefaultValueBytes - 1
	c.ok(strings.Repeat("x", shown)+"é", "push", "--fifo", "mail", "-H", "Trace:abc")
	var it item
	decode(t, c.ok("", "items", "--fifo", "mail", "--json"), &it)

	if it.ID == "" || it.Priority != nil || it.State != client.Ready ||
		*it.Size != shown+len("é") || !it.ValueCut ||
		*it.Value != strings.Repeat("x", shown) || it.Headers.Get("Trace") != "abc" ||
		it.Queue != "mail" || it.PushedAt == "" {
		t.Errorf("printed %+v", it)
	}

	// Texts to match have at most 256 bytes, and ids are as pushes return them.
	c.fails(exitError, "pq: --match: a string of 257 bytes: want at most 256 (400)\n", "items",
		"jobs", "--match", strings.Repeat("x", 257))
	const badID = `pq: --after: invalid item id: "x": want one that a push or pop returned (400)`
	c.fails(exitError, badID+"\n", "items", "jobs", "--after", "x")
}

// A list has 100 items unless a flag says otherwise, and takes as many requests as it needs.
func TestAllItems(t *testing.T) {
	c, _ := newCLI(t)
	const n = subjects.MaxItems + 200 // more than one answer has
	ids := c.ok(strings.Repeat("x\n", n), "push", "jobs", "--lines")

	first := func(flags ...string) string {
		return firstColumn(c.ok("", append([]string{"items", "jobs"}, flags...)...))
	}
	if got := first("--all"); got != ids {
		t.Errorf("printed %d ids that are not those pushed", strings.Count(got, "\n"))
	}

	for flags, want := range map[string]int{
		"":             subjects.DefaultItems,
		"--limit 1100": 1100,
		"--limit 3000": n, // there are no more
	} {
		if got := strings.Count(first(strings.Fields(flags)...), "\n"); got != want {
			t.Errorf("%q: printed %d items, want %d", flags, got, want)
		}
	}
}

// pq dead lists dead letters wherever they are, by the queue they come from, and redrive sends them
// back there; an item that is no dead letter stays.
func TestDead(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "dead_letter=failed")

	for _, queue := range []string{"jobs", "mail"} {
		c.ok("", "push", queue, "to "+queue)
		must(t, c.leased(queue).Term(context.Background(), "no such user"))
	}

	c.ok("", "push", "failed", "no dead letter")
	c.ok("", "push", "other-dead", "no dead letter")

	jobs := `[\w-]+\tfailed\tjobs\tno such user\t\t1\t` + at + `\tto jobs\n`
	mail := `[\w-]+\tmail-dead\tmail\tno such user\t\t1\t` + at + `\tto mail\n`

	for args, want := range map[string]string{
		"dead jobs":         jobs,
		"dead mail":         mail,
		"dead":              jobs + mail,
		"dead --match mail": mail,
		"dead --limit 1":    jobs,
		"dead --fifo":       "",
	} {
		got := c.ok("", strings.Fields(args)...)
		if !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("pq %s printed %q, want %s", args, got, want)
		}
	}

	var it item
	decode(t, c.ok("", "dead", "mail", "--json"), &it)
	if it.Queue != "mail-dead" || it.DeadLetter == nil || it.DeadLetter.Queue != "mail" ||
		it.DeadLetter.Reason != "no such user" || *it.Value != "to mail" {
		t.Errorf("printed %+v", it)
	}

	// What pq dead prints begins with the ids, which redrive reads.
	got := c.ok(c.ok("", "dead", "mail"), "redrive", "mail-dead", "-")
	if !regexp.MustCompile(`^[\w-]+\tmail\n$`).MatchString(got) {
		t.Errorf("printed %q", got)
	}

	c.prints("to mail", "pop", "mail")

	c.fails(exitError, "(409)", "redrive", "failed", c.item("peek", "failed", "--max").ID)
}

// Without filters pq dead says that a queue has no dead letters; with filters it says that no dead
// letter is such.
func TestDeadOfAQueueWithoutAny(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "letters", "x")

	for args, want := range map[string]string{
		"dead letters": "pq: letters has no dead letters: pq dead lists those of all " +
			"queues\n",
		"dead letters --by cause": "pq: letters has no dead letters: pq dead lists those of all " +
			"queues\n",
		"dead letters --match x": "pq: no such dead letters of letters: pq dead lists those of " +
			"all queues\n",
		"dead letters --error x": "pq: no such dead letters of letters: pq dead lists those of " +
			"all queues\n",
		"dead letters --header X:": "pq: no such dead letters of letters: pq dead lists those of " +
			"all queues\n",
	} {
		stdout, stderr, code := c.run("", strings.Fields(args)...)

		if stdout != "" || stderr != want || code != exitOK {
			t.Errorf("pq %s: exit code %d, printed %q%q, want %q", args, code, stdout, stderr, want)
		}
	}
}

// Commands take more ids than a request has room for from standard input, and have a result for
// each of them, even where messages are small. What they say of bad ids is harmless on a terminal.
func TestManyIDs(t *testing.T) {
	t.Parallel()

	const n = 1500 // ids; a request has room for fewer of them
	env := testenv.New(t,
		testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = 200 << 10 }})
	c := &cli{t: t, server: env.NATS.URL()}
	ids := strings.Fields(c.ok(strings.Repeat("x\n", n), "push", "jobs", "--lines"))

	moved := strings.Fields(c.ok(strings.Join(ids, "\n"), "mv", "jobs", "-", "-7"))
	if len(moved) != n || c.item("get", "jobs", moved[n-1]).Priority == nil ||
		*c.item("get", "jobs", moved[n-1]).Priority != -7 {
		t.Errorf("moved %d items, want %d to priority -7", len(moved), n)
	}

	// An id of an item that is gone fails. A repeated one counts once.
	gone := strings.TrimSpace(c.ok("", "push", "jobs", "x"))
	c.ok("", "rm", "jobs", gone)
	stdout, stderr, code := c.run(strings.Join(append(moved, gone, ids[0]), "\n"), "rm", "jobs",
		"-", "--json")
	got := strings.Count(stdout, `"code":404`)
	if code != exitEmpty || got != 1 || strings.Count(stdout, "\n") != 1501 ||
		stderr != "pq: not removed: 1 of 1501 items\n" {
		t.Errorf("exit code %d, %d results, %d not found, %q", code, strings.Count(stdout, "\n"),
			got, stderr)
	}

	c.prints("0\n", "len", "jobs")
	c.prints("", "rm", "jobs", "-") // nothing to do
	if _, stderr, _ := c.run("a\x00b\n\x1b[31mx\n", "rm", "jobs", "-"); !strings.HasPrefix(stderr,
		`pq: a\x00b: `) || !strings.Contains(stderr, "\n"+`pq: \x1b[31mx: `) {
		t.Errorf("a terminal gets %q", stderr)
	}
}

// A malformed id fails alone: the ids around it are served.
func TestMalformedIDs(t *testing.T) {
	c, _ := newCLI(t)

	// Two of the 1001 ids are malformed, "ID" and "x". One of the 1000 items is not among them.
	ids := strings.Fields(c.ok(strings.Repeat("x\n", 1000), "push", "jobs", "--lines"))
	const refused = `invalid item id: "x": want one that a push or pop returned (400)` + "\n"
	some := strings.Join(slices.Concat([]string{"ID"}, ids[:700], []string{"x"}, ids[700:999]),
		"\n")

	stdout, stderr, code := c.run(some, "get", "jobs", "-")
	if stdout != strings.Repeat("x\n", 999) || !strings.Contains(stderr, "pq: x: "+refused) ||
		!strings.HasSuffix(stderr, "\npq: not printed: 2 of 1001 items\n") ||
		code != exitError {
		t.Errorf("exit code %d, %d items, %q", code, strings.Count(stdout, "\n"), stderr)
	}

	stdout, stderr, code = c.run(some, "rm", "jobs", "-", "--json")
	if strings.Count(stdout, "\n") != 1001 || !strings.Contains(
		stdout, `{"id":"x","code":400,"error":"invalid item id: `,
	) || stderr != "pq: not removed: 2 of 1001 items\n" || code != exitError {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}

	c.prints("1\n", "len", "jobs")
	for _, verb := range []string{"rm", "get", "release", "redrive"} {
		c.fails(exitError, "pq: "+refused, verb, "jobs", "x")
	}
}

// pq get prints values of any size in the order of the ids, and names the ids that are not there.
func TestGetMany(t *testing.T) {
	c, _ := newCLI(t)
	large := strings.Repeat("0123456789", 20_000)
	var ids []string

	for _, value := range []string{large, "small", large} {
		ids = append(ids, strings.TrimSpace(c.ok(value, "push", "jobs")))
	}

	want := large + "\nsmall\n" + large + "\n"
	c.prints(want, append([]string{"get", "jobs"}, ids...)...)

	stdout, stderr, code := c.run("", "get", "jobs", ids[1], someID)
	if stdout != "small\n" || stderr != "pq: "+someID+
		": no item has this id\npq: not printed: 1 of 2 items\n" || code != exitEmpty {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// A released item is back at once with no delivery counted; of several items, those that are not
// leased are named, and the others are released.
func TestRelease(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "jobs", "--lines")
	a, b := c.leased("jobs"), c.leased("jobs")
	c.ok("", "release", "jobs", a.ID)

	if it := c.item("lease", "jobs"); it.ID != a.ID || it.Deliveries != 1 {
		t.Errorf("leased %+v", it)
	}

	ready := c.item("peek", "jobs").ID
	stdout, stderr, code := c.run("", "release", "jobs", b.ID, ready, someID)
	if stdout != "" || code != exitError || !strings.Contains(stderr, "pq: "+ready+": ") ||
		!strings.HasSuffix(stderr, "pq: not released: 2 of 3 items\n") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}

	// b is ready again, beside c; a is leased.
	c.prints("pq\tjobs\t2\t1\t0\n", "ls")
}

// On a terminal, a value is shown without control characters and cut to the width of the line. The
// heading comes once, and the columns of a page are in line whatever is in them.
func TestItemRowsOnATerminal(t *testing.T) {
	id, now := strings.Repeat("i", 32), time.Now()
	it := &client.StoredItem{
		ID:         id,
		Priority:   5,
		State:      client.Ready,
		Deliveries: 2,
		// It would clear the screen, break the line and turn the direction of the text.
		Value: []byte("a\x1b[2J\n\u202eé\xff" + strings.Repeat("漢", 50)),
	}

	old := &client.StoredItem{
		ID:       "i",
		Priority: -1234567,
		State:    client.Delayed,
		PushedAt: new(now.Add(-40 * time.Hour)),
		Due:      new(now.Add(time.Hour)),
	}

	table := terminal.NewTableOf(80, itemColumns...)
	table.Row(itemRow(it, true, false, now)...)
	first := table.Flush()
	table.Row(itemRow(old, true, false, now)...)
	table.Row(itemRow(it, true, false, now)...)
	second := table.Flush()

	want := []string{
		"ID                                PRIO  STATE  AGE  TRY  VALUE",
		id + "     5  ready         2  a.[2J .é.漢漢漢漢漢漢~",
		"i" + strings.Repeat(" ", 31) + "  -1234567  delayed 60m  40h    0",
		id + "         5  ready               2  a.[2J .é.漢~",
		"",
	}
	if got := strings.Split(first+second, "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
