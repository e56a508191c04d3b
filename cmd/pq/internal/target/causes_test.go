package target

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// A cause has * for numbers, ids and addresses, but not for a status or a number in a word.
func TestFold(t *testing.T) {
	for _, m := range []struct{ text, want string }{
		{"", ""},
		{"max_deliver", "max_deliver"},
		{"dial tcp 10.0.0.7:5432: connection refused", "dial tcp *: connection refused"},
		{"dial tcp [fe80::1]:5432: i/o timeout", "dial tcp [*]:*: i/o timeout"},
		{
			"lookup db.example.com on 127.0.0.53:53: no such host",
			"lookup db.example.com on *: no such host",
		},
		{"order-4711 of bob.b@example.com is 3 days old", "order-* of * is * days old"},
		{"id 3f8a2c1e-9b7d-4e21-8f0a-1c2d3e4f5a6b", "id *"},
		{"item FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo is gone", "item * is gone"},
		{"commit deadbeef01 of user12345", "commit * of user*"},
		{
			"x509: certificate has expired: 2026-11-25T22:01:02Z is after 10:05",
			"x509: certificate has expired: * is after *",
		},
		{
			"GET http://api/v2/orders/17?page=3: 503 Service Unavailable",
			"GET http://api/v2/orders/*?page=*: * Service Unavailable",
		},
		{"took 30.5s,  want\n1,000\x1b[2Jms", "took *, want * [*"},
		{
			"handle.sh: exit status 65: no such user \"bob\"",
			"handle.sh: exit status *: no such user \"bob\"",
		},
		{"std::bad_alloc in Größe-12", "std::bad_alloc in Größe-*"},
	} {
		if got := Fold(m.text); got != m.want {
			t.Errorf("%q is folded to %q, want %q", m.text, got, m.want)
		}
		if got := Fold(m.want); got != m.want {
			t.Errorf("%q is folded again to %q", m.want, got)
		}
	}
}

// A status decides what has failed, so causes keep it. All other numbers fold, even if they look
// like a status.
func TestFoldKeepsStatus(t *testing.T) {
	for text, want := range map[string]string{
		"unexpected status 404":               "unexpected status 404",
		"unexpected status 503 after 250 ms":  "unexpected status 503 after * ms",
		"Request failed with status code 500": "Request failed with status code 500",
		"Server returned HTTP response code: 502 for user 7": "Server returned HTTP response " +
			"code: 502 for user *",
		"HTTP Error 404: Not Found":        "HTTP Error 404: Not Found",
		"HTTP/1.1 503 Service Unavailable": "HTTP/* 503 Service Unavailable",
		"HTTP-503":                         "HTTP-503",
		`{"statusCode":"429","id":4711}`:   `{"statusCode":"429","id":*}`,
		"StatusCode=500, http_status=501":  "StatusCode=500, http_status=501",
		"503 Service Unavailable":          "503 Service Unavailable",
		"404: order 404 of 500":            "404: order * of *",
		"exit status 137":                  "exit status 137",

		"unexpected status 99":             "unexpected status *",
		"unexpected status 600":            "unexpected status *",
		"unexpected status 5031":           "unexpected status *",
		"status 503ms, code 100 ms":        "status *, code * ms",
		"status of 404 items":              "status of * items",
		"code 127.0.0.1, code 200:10:11":   "code *, code *",
		"code 404-17, code 200/7":          "code *, code *",
		"barcode 123, decode 404, err 503": "barcode *, decode *, err *",
		"250 ms, then 300":                 "* ms, then *",
		"100.64.0.1 is away":               "* is away",
		"order 503 is gone":                "order * is gone",
		"HTTP/200503":                      "HTTP/*",
	} {
		got := Fold(text)

		if got != want {
			t.Errorf("%q is folded to %q, want %q", text, got, want)
		}
		if again := Fold(got); again != got {
			t.Errorf("%q is folded again to %q", got, again)
		}
	}
}

// letter is a dead letter of jobs that was moved at a second.
func letter(id, home, text string, second int64) client.StoredItem {
	return client.StoredItem{ID: id, Headers: map[string][]string{
		subjects.HeaderDeadQueue:  {home},
		subjects.HeaderDeadReason: {"max_deliver"},
		subjects.HeaderDeadError:  {text},
		subjects.HeaderDeadAt:     {time.Unix(second, 0).UTC().Format(subjects.TimeLayout)},
	}}
}

// Dead letters of one cause count together, and their newest is the example.
func TestCauses(t *testing.T) {
	var c Causes
	c.Add(false, "jobs-dead", []client.StoredItem{
		{ID: "cut", HeadersCut: true, Reason: "no route"}, letter("a", "jobs", "no route", 5),
		letter("b", "jobs", "user 1", 3), {ID: "none"}, letter("c", "mail", "user 2", 1),
	})

	c.Add(true, "jobs-dead", []client.StoredItem{letter("d", "jobs", "", 4)})
	want := "jobs-dead jobs no route [cut a] 5 a no route; jobs-dead  user * [b c] 3 b user 1; " +
		"jobs-dead jobs max_deliver [d] 4 d max_deliver; "
	got := ""

	for _, g := range c.List() {
		got += fmt.Sprintln(g.Queue, g.Home, g.Text, g.Refs, g.Newest.Unix(),
			g.ExampleID, g.Example)
		got = got[:len(got)-1] + "; "
	}
	if got != want || c.Letters != 5 || c.List()[1].Oldest.Unix() != 1 {
		t.Errorf("%d letters: %s\nwant %s", c.Letters, got, want)
	}
}

// Neither many causes nor many letters take more memory than some megabytes.
func TestBoundsOfCauses(t *testing.T) {
	words := func(n int) string { // without digits, which Fold replaces
		word := []byte(strconv.Itoa(n))
		for i := range word {
			word[i] += 'a' - '0'
		}

		return string(word)
	}
	for listed, text := range map[int]func(int) string{MaxCauses: words, 1: strconv.Itoa} {
		var c Causes
		n := 0

		for c.Add(false, "jobs-dead",
			[]client.StoredItem{letter(strconv.Itoa(n), "jobs", "no "+text(n), 1)}) {
			n++
		}
		if n != MaxLetters || c.Letters != MaxLetters || len(c.List()) != listed {
			t.Errorf("%d letters, %d causes", n, len(c.List()))
		}
		if listed == MaxCauses && c.Unlisted != MaxLetters-MaxCauses {
			t.Errorf("%d are not listed", c.Unlisted)
		}
	}
}

// A dead letter died of the text of its error and of its cause, and of nothing else.
func TestDiedOf(t *testing.T) {
	d := &subjects.DeadLetter{Error: "user 17", Reason: "max_deliver"}
	for text, want := range map[string]bool{
		"user 17":     true,
		"user *":      true,
		"user 18":     false,
		"max_deliver": false,
	} {
		if DiedOf(d, text) != want {
			t.Errorf("it died of %q: %v", text, !want)
		}
	}
}
