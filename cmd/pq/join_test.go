//go:build unix

package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// openJoin pushes a joiner to the queue jobs that waits until it is closed.
func (c *cli) openJoin() *client.OpenJoin {
	c.t.Helper()
	jobs := client.New(c.conn()).PriorityQueue("jobs")
	m := client.Message{Value: []byte("report")}
	open, err := jobs.OpenJoin(c.t.Context(), time.Hour, 5, m, client.Keep(time.Hour))
	must(c.t, err)
	return open
}

// pq push adds members to a joiner that waits, and refuses to push a joiner, which would wait for
// nobody.
func TestPushOfMembers(t *testing.T) {
	c, _ := newCLI(t)
	open := c.openJoin()
	c.ok("", "push", "jobs", "a", "-H", "Pq-Joiner: "+open.String())
	c.ok("b\nc\n", "push", "jobs", "--lines", "-H", "Pq-Joiner: "+open.String())
	must(t, open.Close(t.Context()))

	c.prints("a\nb\nc\nreport\n", "pop", "jobs", "--all")

	c.fails(exitUsage, "use OpenJoin or All of a client", "push", "jobs", "x", "-H", "Pq-Join:1h")
	c.prints("0\n", "len", "jobs")
}

// What --json prints of joiners and members says so.
func TestJSONOfJoins(t *testing.T) {
	c, _ := newCLI(t)
	open := c.openJoin()
	c.ok("", "push", "jobs", "a", "-H", "Pq-Joiner: "+open.String())

	for _, args := range [][]string{
		{"get", "jobs", open.ID},
		{"items", "jobs", "--match", "report"},
		{"result", "jobs", open.ID},
	} {
		stdout, _, _ := c.run("", append(args, "--json")...)
		var it item
		decode(t, stdout, &it)
		if it.Join != "24h0m0s" || it.Joined != nil || it.State != client.Delayed {
			t.Errorf("%q: %s: want a joiner that waits", args, stdout)
		}
	}
	if a := c.item("pop", "jobs"); a.Joiner != open.String() || a.Join != "" {
		t.Errorf("popped %+v, want a member of %v", a, open)
	}
	must(t, open.Close(t.Context()))

	for _, args := range [][]string{{"items", "jobs"}, {"pop", "jobs"}} {
		want := client.Joined{Done: 1, Gone: 1}
		if it := c.item(args...); it.Join != "" || it.Joined == nil || *it.Joined != want {
			t.Errorf("%q: %+v: want a joiner that has waited", args, it)
		}
	}
}

// People read that a joiner waits for its members, and until when.
func TestTextsOfJoins(t *testing.T) {
	c, _ := newCLI(t)
	open := c.openJoin()

	c.fails(exitNotOver, "is not over: it is waiting for its members, and is due in 23h at the "+
		"latest", "result", "jobs", open.ID)
	term := newTerminal(t, 100)
	term.start(c, nil, "get", "jobs", open.ID).ends(exitOK)
	term.sees("report\r\n")
	said := regexp.MustCompile(`^pq: waiting for its members, until 20\S+Z at the latest\r\n`)
	if got := term.output.String(); !said.MatchString(got) {
		t.Errorf("the terminal shows %q, want %v", got, said)
	}
	term.start(c, nil, "items", "jobs").ends(exitOK)
	term.sees(" waits 23h ")
}

// Commands of pq work hear of joins, and not of those of an outer pq work.
func TestWorkHearsOfJoins(t *testing.T) {
	c, _ := newCLI(t)
	open := c.openJoin()
	c.ok("", "push", "jobs", "a", "-H", "Pq-Joiner: "+open.String())

	inherited := shell("export PQ_JOINED=outer PQ_JOINER=outer; ", "")
	p := c.start(inherited, "work", "jobs", "--", "sh", "-c", `echo "<$PQ_JOINER><$PQ_JOINED>"`)
	p.sees(&p.stdout, "<"+open.String()+"><>\n")
	must(t, open.Close(t.Context()))
	p.sees(&p.stdout, "<><done=1 dead=0 gone=1 open=0>\n")
	p.stop()
}
