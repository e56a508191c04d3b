package main

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// jobs is the queue of the same name.
func (c *cli) jobs() *client.Queue {
	c.t.Helper()
	return client.New(c.conn(), client.WithTimeout(testenv.Patience)).PriorityQueue("jobs")
}

// finish does the first job of a queue, which returns a result.
func finish(t *testing.T, q *client.Queue, result, contentType string) {
	t.Helper()
	d, err := q.Lease(t.Context(), client.Holder("ann"))
	must(t, err)
	d.SetResult([]byte(result), contentType)
	must(t, d.Ack(t.Context()))
}

// push pushes to jobs as the arguments say, and returns the id.
func (c *cli) push(args ...string) string {
	c.t.Helper()
	return strings.TrimSpace(c.ok("", append([]string{"push", "jobs"}, args...)...))
}

// pq result says with its exit code what has become of a job, and prints what it returned.
func TestResult(t *testing.T) {
	c, _ := newCLI(t)
	q := c.jobs()
	id := c.push("a", "--keep", "1h")
	c.fails(exitNotOver, "pq: job "+id+" is not over: it is ready\n", "result", "jobs", id)
	finish(t, q, "\xff\x00", "image/png")
	const again = "the job is done (409): pq redrive jobs ID runs it again\n"
	c.fails(exitError, again, "mv", "jobs", id, "3")
	c.fails(exitError, again, "release", "jobs", id)
	c.fails(exitError, again, "rank", "jobs", id)
	c.fails(exitEmpty, "pq rm --state done removes finished jobs", "rm", "jobs", id)
	c.prints("\xff\x00", "result", "jobs", id, "--wait", "1h")
	it := c.item("result", "jobs", id)
	if it.State != client.Done || string(it.ResultBase64) != "\xff\x00" ||
		it.ContentType != "image/png" || it.Result != nil || it.Value != nil ||
		it.Holder != "ann" || it.Deliveries != 1 || it.PushedAt == "" ||
		it.LeasedAt < it.PushedAt || it.FinishedAt < it.LeasedAt {
		t.Errorf("done: %+v", it)
	}

	late := c.push("l", "--delay", "240h")
	c.fails(exitNotOver, " is not over: it is delayed, and is due in 9d\n", "result", "jobs", late)
	c.ok("", "rm", "jobs", late)

	dead := c.push("b")
	d, err := q.Lease(t.Context())
	must(t, err)
	must(t, d.Nak(t.Context(), 0, client.Reason("no paper")))
	const failed = " is not over: it is ready; its last failure: no paper\n"
	c.fails(exitNotOver, failed, "result", "jobs", dead)
	d, err = q.Lease(t.Context())
	must(t, err)
	must(t, d.Term(t.Context(), "no ink"))
	c.fails(exitError, "no ink", "result", "jobs", dead)
	stdout, _, code := c.run("", "result", "jobs", dead, "--json")
	decode(t, stdout, &it)
	if code != exitError || it.State != client.Dead || it.DeadLetter.Reason != "no ink" {
		t.Errorf("dead: exit code %d, %+v", code, it)
	}

	removed := c.push("c", "--keep", "1h")
	c.ok("", "rm", "jobs", removed)
	c.fails(exitEmpty, "no job with this id", "result", "jobs", removed)
	const notKept = "queue other is not in use: pq ls lists those that are; if the job is done, " +
		"nothing was kept of it: pq push --keep 1h, or pq config QUEUE keep=1h\n"
	for _, command := range []string{"result", "get", "redrive"} {
		c.fails(exitEmpty, notKept, command, "other", id)
	}
	if _, stderr, _ := c.run("", "done", "other"); stderr != "pq: "+notKept {
		t.Errorf("pq done prints %q", stderr)
	}
	c.fails(exitError, "id", "result", "jobs", "x")
}

// pq push --wait prints what the job returned, or why it died, and says if it is not over in time.
func TestPushWaits(t *testing.T) {
	c, _ := newCLI(t)
	worker, err := c.jobs().NewWorker(client.Returns(
		func(_ context.Context, job *client.Job) ([]byte, error) {
			if string(job.Value) == "bad" {
				return nil, client.Drop("no ink")
			}
			return []byte("did " + string(job.Value)), nil
		}), client.WorkerOptions{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()

	c.prints("did a", "push", "jobs", "a", "--wait", "1h")
	c.fails(exitError, "no ink", "push", "jobs", "bad", "--wait", "1h")
	if it := c.item("push", "jobs", "b", "--wait", "1h"); *it.Result != "did b" || it.ID == "" {
		t.Errorf("%+v", it)
	}
	stop()
	must(t, <-ended)

	once := []string{"push", "jobs", "late", "--wait", "1ms", "--msg-id", "m"}
	c.fails(exitNotOver, "is not over: it is ready", once...)
	finish(t, c.jobs(), "in the end", "")
	c.prints("in the end", once...)
}

// Finished jobs are listed newest first, found by what they returned, run again, and removed one by
// one or all.
func TestDone(t *testing.T) {
	c, _ := newCLI(t)
	q := c.jobs()
	c.ok("", "config", "jobs", "keep=1h")
	var ids []string
	for _, value := range []string{"a", "b", "c"} {
		ids = append(ids, c.push(value))
		finish(t, q, "did\n"+value, "")
	}

	rows := strings.SplitAfter(c.ok("", "done", "jobs", "--limit", "2"), "\n")
	row := regexp.MustCompile(`^` + ids[2] + `\t20\S+Z\t[0-9.]+\t1\tann\tdid c\n$`)
	if len(rows) != 3 || !row.MatchString(rows[0]) || !strings.HasPrefix(rows[1], ids[1]+"\t") {
		t.Errorf("the newest two are %q", rows)
	}
	it := c.item("done", "jobs", "--match", "did\na")
	if it.ID != ids[0] || *it.Result != "did\na" || *it.Value != "a" || it.State != client.Done {
		t.Errorf("found %+v", it)
	}
	c.prints(rows[0], "items", "jobs", "--state", "done", "--limit", "1")
	c.prints("", "items", "jobs")
	c.prints("a", "get", "jobs", ids[0])
	if it := c.item("get", "jobs", ids[0]); it.State != client.Done || *it.Value != "a" {
		t.Errorf("got %+v", it)
	}

	c.fails(exitEmpty, "no item has this id", "rm", "jobs", ids[0])
	c.ok("", "rm", "jobs", ids[0], "--state", "done")
	c.fails(exitEmpty, "", "result", "jobs", ids[0])
	c.ok("", "redrive", "jobs", ids[1])
	c.prints("1\n", "len", "jobs")
	c.fails(exitNotOver, "is ready", "result", "jobs", ids[1])
	c.prints("0\n", "purge", "jobs", "--state", "leased", "--yes")
	if info := c.ok("", "info", "jobs"); !strings.Contains(info, "\nfinished    1\n") {
		t.Errorf("info prints %q", info)
	}
	c.prints("1\n", "purge", "jobs", "--state", "done", "--yes")
	c.fails(exitUsage, "want 1s to 87600h0m0s, or 0 for none", "config", "jobs", "keep=1ms")
	c.prints("", "done", "jobs")
	c.prints("1\n", "len", "jobs")
}

// People get a table of finished jobs as wide as their terminal, with a dash for anything unknown,
// and programs get seconds.
func TestDoneRows(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	began := now.Add(-61500 * time.Millisecond)
	job := &client.StoredItem{
		ID: "FBQB", Deliveries: 2, Holder: "ann@host\n", LeasedAt: &began,
		Done: &subjects.Done{FinishedAt: now.Add(-time.Minute), Result: []byte("did\tit well")},
	}
	damaged := &client.StoredItem{ID: "FBQC", Failure: subjects.Failure{Code: 500, Text: "bad"}}

	for width, want := range map[int]string{
		60: "ID    AGE   TOOK  TRY  HOLDER     RESULT\n" +
			"FBQB  60s  1.5 s    2  ann@host   did it well\n" +
			"FBQC    —      —    0             bad\n",
		0: "FBQB\t2030-01-02T03:03:05.000000Z\t1.5\t2\tann@host \tdid it well\n" +
			"FBQC\t-\t-\t0\t-\tbad\n",
	} {
		table := terminal.NewTableOf(width, doneColumns...)
		for _, it := range []*client.StoredItem{job, damaged} {
			table.Row(doneRow(it, width > 0, false, now)...)
		}
		if got := table.Flush(); got != want {
			t.Errorf("with %d columns the rows are %q, want %q", width, got, want)
		}
	}
}

// pq get says of a job, also of one whose value comes by itself, who has it and how far it is, or
// who did it and how long that took.
func TestGetSaysHowAJobIs(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "keep=1h")
	for _, value := range []string{"small", strings.Repeat("large", 20_000)} {
		id := c.push(value)
		d, err := c.jobs().Lease(t.Context(), client.Holder("ann"))
		must(t, err)
		_, err = d.Progress(t.Context(), []byte("40 %"))
		must(t, err)

		it := c.item("get", "jobs", id)
		if *it.Value != value || it.Holder != "ann" || it.Progress != "40 %" ||
			it.LeasedAt == "" || it.Deliveries != 1 || it.ValueCut || it.Took != nil {
			t.Errorf("leased: got %+v", it)
		}
		if text := it.standing(); text != "leased by ann: 40 %" {
			t.Errorf("it is %q", text)
		}

		d.SetResult([]byte("did it"), "")
		must(t, d.Ack(t.Context()))
		for _, command := range []string{"get", "result"} {
			it = c.item(command, "jobs", id)
			if it.State != client.Done || it.Holder != "ann" || *it.Result != "did it" ||
				it.FinishedAt == "" || it.Took == nil || it.PushedAt == "" {
				t.Errorf("%s of a finished job: got %+v", command, it)
			}
		}
		if text := it.standing(); !strings.HasPrefix(text, "done by ann in ") {
			t.Errorf("it is %q", text)
		}
	}
}

// pq get finds a job that has died in its dead-letter queue, and says so.
func TestGetOfADeadJob(t *testing.T) {
	c, _ := newCLI(t)
	id := c.push("a")
	d, err := c.jobs().Lease(t.Context())
	must(t, err)
	must(t, d.Term(t.Context(), "no ink"))

	it := c.item("get", "jobs", id)
	if it.ID != id || it.Queue != "jobs-dead" || it.DeadLetter == nil || *it.Value != "a" {
		t.Errorf("got %+v", it)
	}
}
