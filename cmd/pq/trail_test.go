package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

// lives lets a job of jobs fail twice, die, be redriven, and push two others when it is done: one
// of them is dead, and one waits. It returns the ids of all three.
func (c *cli) lives() (id, dead, waits string) {
	c.t.Helper()
	c.ok("", "config", "jobs", "trail=8", "keep=1h", "max_deliver=2", "next=mail")
	c.ok("", "config", "mail", "trail=8", "max_deliver=1")
	id = c.push("report")

	lease := func() *client.Delivery {
		d, err := c.jobs().Lease(c.t.Context(), client.Holder("bob"))
		must(c.t, err)
		return d
	}
	for _, reason := range []string{"disk full\x1b[2J", "still full"} {
		must(c.t, lease().Nak(c.t.Context(), 0, client.Reason(reason)))
	}
	c.ok("", "redrive", "jobs-dead", id)

	d := lease()
	must(c.t, d.Then("mail", 0, []byte("bad address")))
	must(c.t, d.Then("mail", 1, []byte("good address")))
	must(c.t, d.Ack(c.t.Context()))

	failed := c.leased("mail")
	must(c.t, failed.Nak(c.t.Context(), 0, client.Reason("no such user")))
	return id, failed.ID, c.item("peek", "mail").ID
}

// pq trail says of a job with two lives why it failed first, what it has pushed, and which of these
// is stuck. Nothing that others have written reaches a terminal as it stands.
func TestTrail(t *testing.T) {
	c, _ := newCLI(t)
	id, dead, waits := c.lives()

	when := `[\d-]+ [\d:]+`
	took := ` after \d+ ms by bob`
	died := `mail ` + dead + `: dead for \d+s: max_deliver; last failure: no such user\n`
	ready := `mail ` + waits + `: waits, pushed \d+s ago\n`
	want := regexp.MustCompile(`^job         jobs ` + id + `\n` +
		`first push  ` + when + `, \d+s ago\n` +
		`attempts    life 1, 1: nak at ` + when + took + `: disk full.*\n` +
		`            life 1, 2: nak at ` + when + took + `: still full\n` +
		`            life 2, 1: done at ` + when + took + `\n` +
		`now         done \d+s ago by bob in \d+ ms\n` +
		`chain       > jobs ` + id + `: done .*\n` +
		`                mail ` + strings.TrimPrefix(died, "mail ") +
		`                mail ` + strings.TrimPrefix(ready, "mail ") +
		`stuck       ` + died +
		`            ` + ready + `$`)
	got := c.ok("", "trail", "jobs", id)
	if !want.MatchString(got) || strings.Contains(got, "\x1b") {
		t.Errorf("printed\n%s\nwant\n%v", got, want)
	}

	got = c.ok("", "trail", "mail", dead)
	for _, words := range []string{
		"attempts    life 1, 1: nak ", "chain         jobs " + id + ": done ",
		"            >   mail " + dead + ": dead ", "stuck       mail " + dead,
	} {
		if !strings.Contains(got, words) {
			t.Errorf("the trail of a dead letter lacks %q:\n%s", words, got)
		}
	}
}

// With --json, each job of a chain is a line, with its attempts and its depth.
func TestTrailAsJSON(t *testing.T) {
	c, _ := newCLI(t)
	id, dead, waits := c.lives()

	var got []string
	for line := range strings.Lines(c.ok("", "trail", "mail", dead, "--json")) {
		k := kin{item: &item{}}
		must(t, json.Unmarshal([]byte(line), &k))
		got = append(got, fmt.Sprint(k.Depth, " ", k.Queue, " ", k.ID, " ", k.State, " ",
			len(k.Attempts), " ", len(k.Successors), " ", k.Parent, " ",
			k.FirstPushed <= k.PushedAt))
	}

	want := fmt.Sprintf("-1 jobs %[1]s done 3 2 <nil> true\n"+
		"0 mail-dead %[2]s ready 1 0 jobs %[1]s true", id, dead)
	if strings.Join(got, "\n") != want {
		t.Errorf("printed %q, want %q", got, want)
	}

	it := c.item("get", "mail", dead)
	if len(it.Attempts) != 1 || it.Parent == nil || it.Parent.ID != id {
		t.Errorf("pq get of the dead letter prints %+v", it)
	}
	it = c.item("get", "jobs", id)
	if len(it.Attempts) != 3 || len(it.Successors) != 2 || it.Successors[1].ID != waits {
		t.Errorf("pq get prints %+v", it)
	}
}

// The id of a job says when it was first pushed.
func TestFirstPush(t *testing.T) {
	c, _ := newCLI(t)
	id := c.push("a")

	pushed := c.item("get", "jobs", id).PushedAt
	if got := timeText(target.FirstPush(id)); got != pushed {
		t.Errorf("first pushed at %s, want %s", got, pushed)
	}
	if !target.FirstPush("x").IsZero() || !target.FirstPush(strings.Repeat("A", 32)).IsZero() {
		t.Error("what is no id of a bridge has a time")
	}
}

// A job without a trail says how many attempts it has lost, and how to keep the next ones where the
// setting says none. One that is not there is not found.
func TestTrailOfNothing(t *testing.T) {
	c, _ := newCLI(t)
	id := c.push("a")
	says := func(want string) {
		t.Helper()
		got := c.ok("", "trail", "jobs", id)
		if !strings.Contains(got, "attempts    "+want+"\n") ||
			!strings.Contains(got, "chain       no job is known ") {
			t.Errorf("printed %s, want %q", got, want)
		}
	}
	const keep = ": pq config jobs trail=8 keeps those to come"

	says("none has ended" + keep)
	d := c.leased("jobs")
	says("none has ended" + keep)
	must(t, d.Nak(t.Context(), 0))
	says("1 attempt not kept" + keep)
	c.leased("jobs")
	says("1 attempt not kept" + keep)
	c.ok("", "config", "jobs", "trail=8")
	says("1 attempt not kept")

	c.ok("", "rm", "jobs", id)
	c.push("b")
	c.fails(exitEmpty, "pq: no item has this id: ", "trail", "jobs", id)
	c.fails(exitError, "want one that a push or pop returned", "trail", "jobs", "x")
}

// Attempts that the trail does not keep any more are said to be missing, and so are whole lives.
func TestTrailWithGaps(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "trail=2")
	id := c.push("a")
	for n := range 5 {
		must(t, c.leased("jobs").Nak(t.Context(), 0, client.Reason(fmt.Sprint("error ", n+1))))
	}

	got := c.ok("", "trail", "jobs", id)

	want := regexp.MustCompile(`life 1, 1: .* error 1\n +life 1, 2 to 4: not kept\n` +
		` +life 1, 5: .* error 5\nnow         waits, .*; last failure: error 5\n`)
	if !want.MatchString(got) {
		t.Errorf("printed %s, want %v", got, want)
	}

	for range 4 {
		must(t, c.leased("jobs").Term(t.Context(), "no paper"))
		c.ok("", "redrive", "jobs", id)
	}
	must(t, c.leased("jobs").Nak(t.Context(), 0, client.Reason("at last")))

	got = c.ok("", "trail", "jobs", id)

	want = regexp.MustCompile(`life 1, 1: .* error 1\n +lives 2 to 4: not kept\n` +
		` +life 5, 1: .* at last\n`)
	if !want.MatchString(got) {
		t.Errorf("printed %s, want %v", got, want)
	}
}
