package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// pq busy lists leased items with their holders, those held longest first.
func TestBusy(t *testing.T) {
	c, _ := newCLI(t)
	c.prints("", "busy")
	c.ok("one!\ntwo!\n", "push", "jobs", "--lines")
	c.ok("", "push", "--fifo", "mail", "x")
	first := c.item("lease", "jobs", "--holder", "the first", "--ack-wait", "1h")
	mail := c.item("lease", "--fifo", "mail", "--ack-wait", "1h")
	second := c.leased("jobs") // in nobody's name

	row := func(id, queue, holder string) string {
		return id + `\t` + queue + `\t` + holder + `\t` + at + `\t` + at + `\t1\t-\n`
	}
	jobs1, jobs2 := row(first.ID, "jobs", "the first"), row(second.ID, "jobs", "-")
	one := row(mail.ID, "mail", `\S+ pid \d+ pq.*`)

	for args, want := range map[string]string{
		"busy":                         jobs1 + one + jobs2,
		"busy jobs":                    jobs1 + jobs2,
		"busy --fifo":                  one,
		"busy --fifo mail":             one,
		"busy --limit 2":               jobs1 + one,
		"busy --match first":           jobs1,
		"busy jobs --match two! --all": jobs2,
	} {
		got := c.ok("", strings.Fields(args)...)
		if !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("pq %s printed %q, want %s", args, got, want)
		}
	}

	var it item
	decode(t, c.ok("", "busy", "jobs", "--limit", "1", "--json"), &it)
	if it.Holder != "the first" || it.LeasedAt == "" || it.Due == "" || it.State != client.Leased ||
		*it.Value != "one!" {
		t.Errorf("printed %+v", it)
	}

	// What it prints can be released.
	c.ok(c.ok("", "busy", "jobs", "--limit", "1"), "release", "jobs", "-")
	c.fails(exitError, "(409)", "ack", first.Receipt)

	if got := c.ok("", "busy", "jobs"); !strings.HasPrefix(got, second.ID) {
		t.Errorf("printed %q", got)
	}
}

// Of more leased items than are printed, the longest held are kept.
func TestLongestHeld(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "busy", "jobs", "--limit", "2", "--prefix", "relay")

	page := func(next *string, seconds ...int) {
		page := subjects.ItemsPage{Next: next, Scanned: int64(len(seconds))}
		for _, second := range seconds {
			since := time.Date(2030, 1, 1, 0, 0, second, 0, time.UTC)
			page.Items = append(page.Items, subjects.StoredItem{
				ID:       fmt.Sprint("id-", second),
				State:    client.Leased,
				LeasedAt: &since,
			})
			if second == 4 {
				page.Items[0].Progress = []byte("3 of 9")
			}
		}

		m := r.next()
		if !strings.Contains(string(m.Data), `"state":"leased"`) {
			t.Errorf("it asks for %s", m.Data)
		}

		r.respond(m, &nats.Msg{Data: page.Encode()})
	}

	next := someID
	page(&next, 7, 3, 9, 5, 8)
	page(nil, 4, 6)
	p.ends(exitOK)
	p.printed("id-3\tjobs\t-\t2030-01-01T00:00:03.000000Z\t-\t0\t-\n" +
		"id-4\tjobs\t-\t2030-01-01T00:00:04.000000Z\t-\t0\t3 of 9\n")
}
