package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func TestWatchLines(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\n", "push", "jobs", "--lines")
	c.ok("", "push", "jobs", "later", "--delay", "1h")
	c.ok("", "push", "--fifo", "mail", "x")
	want := regexp.MustCompile("^" + at + "\tpq\tjobs\t2\t0\t1\t-\t\\d+\\.\\d\n" + at + "\tq\tmail\t1\t0\t0\t-\t\\d+\\.\\d\n" +
		at + "\tpq\tjobs\t2\t0\t1\t0\\.0\t\\d+\\.\\d\n" + at + "\tq\tmail\t1\t0\t0\t0\\.0\t\\d+\\.\\d\n$")
	if got := c.ok("", "watch", "--count", "2", "--every", "100ms"); !want.MatchString(got) {
		t.Errorf("printed %q, want %v", got, want)
	}
	var line struct {
		Time, Kind, Queue string
		Ready, Delayed    int
		Change            *float64 `json:"change_per_s"`
	}
	decode(t, c.ok("", "watch", "jobs", "--count", "1", "--json"), &line)
	if line.Kind != "pq" || line.Queue != "jobs" || line.Ready != 2 || line.Delayed != 1 || line.Change != nil || line.Time == "" {
		t.Errorf("printed %+v", line)
	}
}

// lookAt is a look at some queues with a number of ready items each.
func lookAt(second int, ready ...int64) *look {
	l := &look{at: time.Date(2030, 1, 2, 3, 4, second, 0, time.UTC), bridges: 2, pushes: 1000 * second, pops: 500 * second}
	for i, n := range ready {
		age := time.Duration(second) * time.Minute
		l.queues = append(l.queues, seen{counted{"pq", subjects.QueueCounts{Queue: fmt.Sprintf("jobs%d", i), Ready: n, Leased: 1}}, &age})
	}
	return l
}

func TestFrameOfWatch(t *testing.T) {
	var h history
	for second, n := range []int64{0, 4, 8} {
		h.add(lookAt(second, n, 1234567), nil)
	}
	want := `03:04:02   2 queues   2 bridges   1,000 pushes/s   500 pops/s

KIND  QUEUE      READY  LEASED  DELAYED  CHANGE/S  OLDEST  READY LATELY
pq    jobs0          8       1        0      +4.0    2m0s  _=#
pq    jobs1  1,234,567       1        0         0    2m0s  ###
`
	if got := h.frame(80, 24, false); got != want {
		t.Errorf("drawn\n%swant\n%s", got, want)
	}
	h.add(nil, errors.New("no reply"))
	if got := h.frame(80, 24, true); !strings.HasPrefix(got, "03:04:02, since then: no reply\n") || !strings.Contains(got, "▁▅█") {
		t.Errorf("after an error\n%s", got)
	}
}

// A frame fits on the terminal, whatever there is, and names stay apart on 80 columns, wherever they differ.
func TestFrameFits(t *testing.T) {
	names := append(strings.Fields("eu-west-1-orders-of-acme-high eu-west-1-orders-of-acme-low "+
		"eu-west-2-orders-of-acme-low jobs"), strings.Repeat("long", 32))
	many := make([]int64, 50)
	for i := range many {
		many[i] = int64(i) * 1_000_000
	}
	for _, size := range [][2]int{{80, 24}, {100, 10}, {80, 5}, {200, 60}, {60, 24}, {40, 24}} {
		var h history
		for second := range 20 {
			l := lookAt(second, many...)
			for i, name := range names {
				l.queues[i].Queue = name
			}
			h.add(l, nil)
		}
		frame := h.frame(size[0], size[1], true)
		lines := strings.Split(frame, "\n")
		if len(lines) > size[1] {
			t.Errorf("%d lines on %d", len(lines), size[1])
		}
		seen := map[string]bool{}
		for i, line := range lines {
			if utf8.RuneCountInString(line) > size[0] {
				t.Errorf("%d columns on %d: %s", utf8.RuneCountInString(line), size[0], line)
			}
			if name := regexp.MustCompile(`^pq +(\S+)`).FindStringSubmatch(line); name != nil && i < 3+len(names) {
				seen[name[1]] = true
			}
		}
		if size == [2]int{80, 24} && len(seen) != len(names) {
			t.Errorf("names look the same:\n%s", frame)
		}
		if len(many) > size[1] && !strings.Contains(frame, " more queues: name ") {
			t.Errorf("what is left out?\n%s", frame)
		}
	}
}

func TestTrend(t *testing.T) {
	for _, m := range []struct {
		want    string
		numbers []int64
	}{{"", nil}, {"__", []int64{0, 0}}, {"_#", []int64{0, 5}}, {".#", []int64{1, 1000}}, {"_=#", []int64{0, 4, 8}}} {
		if got := terminal.Trend(m.numbers, false); got != m.want {
			t.Errorf("%v is drawn as %s, want %s", m.numbers, got, m.want)
		}
	}
}
