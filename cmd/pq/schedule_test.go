package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestSchedule(t *testing.T) {
	c, _ := newCLI(t)
	for _, flag := range []string{"--fifo=false", "--fifo"} {
		printed := strings.TrimSpace(c.ok("", "schedule", "add", "jobs", "nightly", "the report", "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "-H", "Trace:abc", flag))
		next, err := time.Parse(time.RFC3339, printed)
		must(t, err)
		if next.Before(time.Now()) {
			t.Errorf("next %v", next)
		}
		c.ok("", "schedule", "add", "jobs", "often", "--every", "1h", "--overlap", "skip", "--jitter", "5s", "--if-missed", "all", "--until", "2100-01-02T15:04:05Z", flag)
		c.prints("", "schedule", "pause", "jobs", "often", flag)
		c.prints("", "schedule", "run", "jobs", "nightly", flag)
		if got := c.ok("", "pop", "jobs", "--json", flag); !strings.Contains(got, `"value":"the report"`) || !strings.Contains(got, `"Trace":["abc"]`) || !strings.Contains(got, `"Pq-Schedule":["nightly"]`) {
			t.Errorf("popped %s", got)
		}

		lines := strings.Split(c.ok("", "schedule", "ls", "jobs", flag), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "nightly\t0 3 * * * Europe/Berlin\t"+printed+"\t20") || !strings.HasSuffix(lines[0], "\t1\t0") || lines[1] != "often\tevery 1h0m0s\tpaused\t-\t0\t0" {
			t.Errorf("listed %q", lines)
		}
		var record client.ScheduleRecord
		must(t, json.Unmarshal([]byte(strings.Split(c.ok("", "schedule", "ls", "jobs", "--json", flag), "\n")[1]), &record))
		if record.ID != "often" || record.Overlap != schedule.Skip || record.IfMissed != schedule.All || time.Duration(record.Jitter) != 5*time.Second || record.Until.Year() != 2100 {
			t.Errorf("often is %+v", record)
		}
		must(t, json.Unmarshal([]byte(c.ok("", "schedule", "resume", "jobs", "often", "--json", flag)), &record))
		must(t, json.Unmarshal([]byte(c.ok("", "schedule", "run", "jobs", "often", "--json", flag)), &record))
		if record.ID != "often" || record.Fired != 1 || record.Next.IsZero() {
			t.Errorf("run: %+v", record)
		}
		for _, id := range []string{"nightly", "often"} {
			c.prints(`{"queue":"jobs","id":"`+id+"\"}\n", "schedule", "rm", "jobs", id, "--json", flag)
		}
		if _, stderr, code := c.run("", "schedule", "ls", "jobs", flag); code != exitOK || stderr != "pq: no schedules\n" {
			t.Errorf("exit code %d, %q", code, stderr)
		}
	}

	away := &cli{t: t, server: "nats://127.0.0.1:1"} // what is wrong is noticed before anything is sent
	away.fails(exitUsage, "bad schedule: cron: ", "schedule", "add", "jobs", "a", "--cron", "0 3 * *")
	away.fails(exitUsage, "bad schedule: every: ", "schedule", "add", "jobs", "a", "--every", "1ms")
	away.fails(exitUsage, "header", strings.Fields("schedule add jobs a --every 1s -H x")...)
	away.fails(exitUsage, "want a time such as 2030", strings.Fields("schedule add jobs a --every 1s --until soon")...)
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
	record, err := client.New(c.conn()).PriorityQueue("jobs").SetSchedule(context.Background(), s)
	if err != nil || string(record.Value) != "report" || record.Next.IsZero() {
		t.Errorf("%+v, %v", record, err)
	}
}
