package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/testenv"
)

// A schedule is set, listed, run, paused, resumed and removed, for queues of either kind.
func TestSchedule(t *testing.T) {
	c, _ := newCLI(t)
	for _, flag := range []string{"--fifo=false", "--fifo"} {
		printed := strings.TrimSpace(c.ok("", "schedule", "add", "jobs", "nightly", "the report",
			"--cron", "0 3 * * *", "--zone", "Europe/Berlin", "-H", "Trace:abc", flag))
		next, err := time.Parse(time.RFC3339, printed)
		must(t, err)

		if next.Before(time.Now()) {
			t.Errorf("next %v", next)
		}

		c.ok("", "schedule", "add", "jobs", "often", "--every", "1h", "--overlap", "skip",
			"--jitter", "5s", "--if-missed", "all", "--until", "2100-01-02T15:04:05Z", flag)
		c.prints("", "schedule", "pause", "jobs", "often", flag)
		c.prints("", "schedule", "run", "jobs", "nightly", flag)

		got := c.ok("", "pop", "jobs", "--json", flag)
		if !strings.Contains(got, `"value":"the report"`) ||
			!strings.Contains(got, `"Trace":["abc"]`) ||
			!strings.Contains(got, `"Pq-Schedule":["nightly"]`) {
			t.Errorf("popped %s", got)
		}

		lines := strings.Split(c.ok("", "schedule", "ls", "jobs", flag), "\n")
		if len(lines) != 3 || !strings.HasPrefix(
			lines[0], "jobs\tnightly\t0 3 * * * Europe/Berlin\t"+printed+"\t20",
		) || !strings.HasSuffix(lines[0], "\t1\t0") ||
			lines[1] != "jobs\toften\tevery 1h\tpaused\t-\t0\t0" {
			t.Errorf("listed %q", lines)
		}

		var record client.ScheduleRecord
		must(t, json.Unmarshal([]byte(
			strings.Split(c.ok("", "schedule", "ls", "jobs", "--json", flag), "\n")[1]), &record))
		if record.ID != "often" || record.Overlap != schedule.Skip ||
			record.IfMissed != schedule.All || time.Duration(record.Jitter) != 5*time.Second ||
			record.Until.Year() != 2100 {
			t.Errorf("often is %+v", record)
		}
		must(t, json.Unmarshal(
			[]byte(c.ok("", "schedule", "resume", "jobs", "often", "--json", flag)), &record))
		must(t, json.Unmarshal([]byte(c.ok("", "schedule", "run", "jobs", "often", "--json", flag)),
			&record))

		if record.ID != "often" || record.Fired != 1 || record.Next.IsZero() {
			t.Errorf("run: %+v", record)
		}

		for _, id := range []string{"nightly", "often"} {
			c.prints(`{"queue":"jobs","id":"`+id+"\"}\n", "schedule", "rm", "jobs", id, "--json",
				flag)
		}

		c.ok("", "push", "jobs", "x", flag)
		_, stderr, code := c.run("", "schedule", "ls", "jobs", flag)
		if code != exitOK || stderr != "pq: no schedules\n" {
			t.Errorf("exit code %d, %q", code, stderr)
		}
	}

	// Mistakes are noticed before anything is sent.
	away := &cli{t: t, server: "nats://127.0.0.1:1"}
	away.fails(exitUsage, "pq: want either --cron or --every, such as",
		"schedule", "add", "jobs", "a")
	away.fails(exitUsage, "header", strings.Fields("schedule add jobs a --every 1s -H x")...)
	away.fails(exitUsage, "want a time such as 2030",
		strings.Fields("schedule add jobs a --every 1s --until soon")...)
	// The bridge refuses the rest, and pq names the flag.
	c.fails(exitError, "pq: --cron: \"0 3 * *\": it has 4 fields", "schedule", "add", "jobs", "a",
		"--cron", "0 3 * *")

	for words, flags := range map[string]string{
		"pq: --if-missed: \"no\": want": "--every 1s --if-missed no",
		"pq: --every: ":                 "--every 1ms",
		"pq: --until: 2020-01-01T00:00:00Z: the schedule has no time before that": "--every 1s " +
			"--until 2020-01-01T00:00:00Z",
	} {
		c.fails(exitError, words, strings.Fields("schedule add jobs a "+flags)...)
	}
	c.fails(exitEmpty, "want the id of one that pq schedule ls lists", "schedule", "run", "jobs",
		"a")

	c.ok("from stdin", strings.Fields("schedule add reports a - --every 1h")...)
	c.ok("", "schedule", "run", "reports", "a")
	c.prints("from stdin", "pop", "reports")
}

// Without a queue, all have their schedules in one list.
func TestSchedulesOfAllQueues(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "none", "x")

	for _, args := range []string{
		"jobs poll", "jobs nightly", "mail hourly", "--fifo mail hourly",
	} {
		c.ok("", append(strings.Fields("schedule add --cron @yearly"), strings.Fields(args)...)...)
	}

	var got []string
	for line := range strings.Lines(c.ok("", "schedule", "ls")) {
		got = append(got, strings.Join(strings.Split(line, "\t")[:2], " "))
	}

	want := "jobs nightly, jobs poll, mail hourly, mail hourly"
	if strings.Join(got, ", ") != want {
		t.Errorf("listed %q, want %s", got, want)
	}

	var one scheduled
	must(t, json.Unmarshal([]byte(c.ok("", "schedule", "ls", "--fifo", "--json")), &one))
	if one.Kind != "q" || one.Queue != "mail" || one.ID != "hourly" || one.Next.IsZero() {
		t.Errorf("printed %+v", one)
	}
	c.fails(exitUsage, "too many arguments: want pq schedule ls [QUEUE]", "schedule", "ls", "jobs",
		"nightly")
	c.fails(exitUsage, "bad queue name", "schedule", "ls", "a.b")
}

// pq info names the schedules, and says so if the user may not read them.
func TestInfoNamesSchedules(t *testing.T) {
	t.Parallel()

	c := newCLIWith(t,
		map[string]*server.Permissions{"me": publish(nil, []string{"pq.*.schedules"})})
	for i := range 2 {
		c.ok("", "schedule", "add", "jobs", fmt.Sprintf("poll-%02d", i), "--cron", "@yearly")
	}

	c.ok("", "schedule", "pause", "jobs", "poll-01")
	got := c.ok("", "info", "jobs")

	for _, want := range []string{
		"schedules   poll-00: @yearly UTC, next 20", "            poll-01: @yearly UTC, paused\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
	if got := c.ok("", "info", "jobs", "--user", "me", "--password", "me"); !strings.Contains(got,
		"\nschedules   cannot be read: ") {
		t.Errorf("printed %q", got)
	}
}

// The page on schedules shows a request that a queue takes as it is.
func TestSchedulesPage(t *testing.T) {
	c, _ := newCLI(t)
	text := testenv.Documents(t, root)[root+"/docs/schedules.md"]
	_, rest, _ := strings.Cut(text, "```json\n")
	block, _, found := strings.Cut(rest, "```")

	s, err := schedule.Decode[client.Schedule]([]byte(block))
	if err != nil || !found {
		t.Fatalf("%q: %v", block, err)
	}

	record, err := client.New(
		c.conn(), client.WithTimeout(testenv.Patience),
	).PriorityQueue("jobs").SetSchedule(context.Background(), s)
	if err != nil || string(record.Value) != "report" || record.Next.IsZero() {
		t.Errorf("%+v, %v", record, err)
	}
}
