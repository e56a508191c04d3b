package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// pq watch prints a line for each queue each time, with the change since the last one.
func TestWatchLines(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\n", "push", "jobs", "--lines")
	c.ok("", "push", "jobs", "later", "--delay", "1h")
	c.ok("", "push", "--fifo", "mail", "x")

	want := regexp.MustCompile("^" + at + "\tpq\tjobs\t2\t0\t1\t-\t\\d+\\.\\d\n" + at +
		"\tq\tmail\t1\t0\t0\t-\t\\d+\\.\\d\n" +
		at + "\tpq\tjobs\t2\t0\t1\t\\+0\\.0\t\\d+\\.\\d\n" + at +
		"\tq\tmail\t1\t0\t0\t\\+0\\.0\t\\d+\\.\\d\n$")

	// A look that takes long is said to, and that is all right.
	got, stderr, code := c.run("", "watch", "--count", "2", "--every", "100ms")
	if code != exitOK || !want.MatchString(got) {
		t.Errorf("exit code %d, printed %q, want %v: %s", code, got, want, stderr)
	}

	var line struct {
		Time, Kind, Queue string
		Ready, Delayed    int
		Change            *float64 `json:"change_per_s"`
	}

	decode(t, c.ok("", "watch", "jobs", "--count", "1", "--json"), &line)
	if line.Kind != "pq" || line.Queue != "jobs" || line.Ready != 2 || line.Delayed != 1 ||
		line.Change != nil || line.Time == "" {
		t.Errorf("printed %+v", line)
	}
}

// Figures that are not new say so.
func TestWatchWithoutAnswers(t *testing.T) {
	c, r := newRelay(t)
	c.ok("", "push", "jobs", "x")
	p := c.start(nil, "watch", "jobs", "--every", "100ms", "--prefix", "relay")
	m := r.next()
	before := time.Now().Truncate(time.Microsecond)
	r.forward(m)
	p.sees(&p.stdout, "\tjobs\t")

	text, _, _ := strings.Cut(p.stdout.String(), "\t")
	if at, err := time.Parse(subjects.TimeLayout, text); err != nil || at.Before(before) {
		t.Errorf("the figures are of %s, before they came: %v", text, before)
	}

	m = r.next()
	p.sees(&p.stderr, "pq: no answer yet: the figures are of ")
	r.fail(m, false)
	p.sees(&p.stderr, "pq: made up (503): the figures are of ")
}

// The change of a queue is per second since the last look, from zero if it was not there.
func TestChangeOfWatch(t *testing.T) {
	lookAt := func(second int, ready ...int64) *look {
		l := &look{at: time.Unix(int64(second), 0)}
		for i, n := range ready {
			counts := subjects.QueueCounts{Queue: fmt.Sprint("jobs", i), Ready: n, Leased: 1}
			l.queues = append(l.queues, counted{Kind: "pq", QueueCounts: counts})
		}

		return l
	}

	first, second := lookAt(10, 5), lookAt(12, 1, 7)
	for i, want := range []float64{-2, 4} { // the second was not there
		if got := second.change(first, second.queues[i]); got == nil || *got != want {
			t.Errorf("queue %d changes by %v a second, want %v", i, got, want)
		}
	}
	if got := first.change(nil, first.queues[0]); got != nil {
		t.Errorf("after one look the change is %v", *got)
	}
}
