//go:build unix

package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// dueIn waits until an item of jobs stays back, and returns for how long, to the hour.
func (c *cli) dueIn() time.Duration {
	c.t.Helper()
	jobs := client.New(c.conn(), client.WithTimeout(testenv.Patience)).PriorityQueue("jobs")

	var info *client.QueueInfo
	testenv.Eventually(c.t, func() (err error) {
		if info, err = jobs.Info(c.t.Context()); err == nil && info.Delayed != 1 {
			err = fmt.Errorf("there are %+v", info)
		}
		return err
	})

	return time.Until(*info.NextDue).Round(time.Hour)
}

// An item whose command fails stays back, so that it does not fail again at once: for the backoff
// of its queue, even if the user may not read that, or else for --retry-delay, which has a default.
func TestFailuresPause(t *testing.T) {
	t.Parallel()

	// The worker may lease and settle items, and not read settings.
	c := newCLIWith(t, map[string]*server.Permissions{
		"worker": publish([]string{"pq.jobs.pop.*", "pq.jobs.ack.*"}, nil),
	})

	for _, m := range []struct {
		backoff, flags string
		want           time.Duration
	}{
		{"", "--retry-delay 1h", time.Hour},
		{"2h", "--retry-delay 1h", 2 * time.Hour},
		{"2h", "", 2 * time.Hour},
		{"2h", "--user worker --password worker --retry-delay 1h", 2 * time.Hour},
		{"", "--user worker --password worker --retry-delay 1h", time.Hour},
	} {
		c.ok("", "config", "jobs", "backoff="+m.backoff, "max_deliver=9")
		c.ok("", "push", "jobs", "x")
		p := c.start(nil,
			append(append([]string{"work", "jobs"}, strings.Fields(m.flags)...), "--", "false")...)

		if got := c.dueIn(); got != m.want {
			t.Errorf("backoff %s, %s: comes back in %v, want %v", m.backoff, m.flags, got, m.want)
		}

		p.stop()
		p.says("exit status 1")
		c.ok("", "purge", "jobs", "--yes")
	}

	// Neither a backoff nor --retry-delay: dueIn fails unless the item stays back.
	c.ok("", "config", "jobs", "backoff=")
	c.ok("", "push", "jobs", "x")
	c.start(nil, "work", "jobs", "--", "false")
	c.dueIn()
}

// A user who may not acknowledge is told which permission is missing, and the item stays in the
// queue, whether its lease has the queue's length or one that a flag says.
func TestWorkMayNotAcknowledge(t *testing.T) {
	t.Parallel()

	c := newCLIWith(t,
		map[string]*server.Permissions{"worker": publish(nil, []string{"pq.jobs.ack.*"})})
	for _, settings := range [][]string{nil, {"--ack-wait", "1h"}} {
		c.ok("", "push", "jobs", "x")

		args := append([]string{"work", "jobs", "--user", "worker", "--password", "worker"},
			settings...)
		_, stderr, code := c.run("", append(args, "--", "true")...)

		if left := c.ok("", "items", "jobs"); strings.Count(left, "\n") != 1 {
			t.Errorf("%q: the queue has %q, want the one item", settings, left)
		}
		if code != exitError || !strings.Contains(stderr, `Publish to "pq.jobs.ack.`) ||
			!strings.Contains(stderr, "give this user the permission, or log in as another") {
			t.Errorf("%q: exit code %d, %s", settings, code, stderr)
		}

		c.ok("", "purge", "jobs", "--yes")
	}
}

// An acknowledgement that gets 500 ends with that answer, and after +NXT with the one to +ACK: pq
// work says that the item comes back, and runs the command for the next one.
func TestWorkGoesOnAfterAFault(t *testing.T) {
	c, env := newCLI(t)
	var acks atomic.Int32
	env.Relay("far", func(m *nats.Msg) *nats.Msg {
		if !strings.Contains(m.Subject, ".ack.") || strings.HasPrefix(string(m.Data), "+WPI") {
			return nil
		}
		acks.Add(1)
		fault := subjects.Error{Code: subjects.CodeInternal, Text: "a lie"}
		return &nats.Msg{Header: fault.Headers()}
	})
	c.ok("", "push", "jobs", "first")
	c.ok("", "push", "jobs", "second")

	p := c.start(nil, "work", "jobs", "--prefix", "far", "--", "cat")

	p.sees(&p.stdout, "firstsecond")
	testenv.Eventually(t, func() error {
		log := p.stderr.String()
		if n := strings.Count(log, "cannot settle a job: it comes back"); n != 2 {
			return fmt.Errorf("it says %d times that an item comes back, want 2: %s", n, log)
		}
		return nil
	})
	p.stop()
	if n := acks.Load(); n != 4 {
		t.Errorf("%d acknowledgements of two items: want +NXT and +ACK for each", n)
	}
}

// pq work ends when nobody reads its output any more, as in pq work jobs -- cat | head -1, whether
// its command goes on writing or not. It says so, and its item keeps its only delivery.
func TestReaderOfWorkGoes(t *testing.T) {
	for name, script := range map[string]string{
		"busy": "echo begun; while :; do echo more; done",
		"idle": "echo begun",
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCLI(t)
			c.ok("", "config", "jobs", "max_deliver=1")
			c.ok("", "push", "jobs", "a")
			p, r := c.startPiped("work", "jobs", "--", "sh", "-c", script)
			_, err := r.Read(make([]byte, len("begun\n")))
			must(t, err)

			_ = r.Close()
			p.ends(exitError)
			p.says("pq: standard output: the reader has gone (broken pipe)",
				"nobody reads standard output any more")

			if got := c.ok("", "ls"); strings.Contains(got, "jobs-dead") {
				t.Errorf("the delivery was counted: the queues are %s", got)
			}
		})
	}
}

// The command of a pq work that is killed dies with it, because nobody is left to end it.
func TestCommandDiesWithPQ(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}

	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a")
	p, r := c.startPiped("work", "jobs", "--", "sh", "-c", "echo begun; exec sleep 1000")
	defer r.Close()
	_, err := io.ReadFull(r, make([]byte, len("begun\n")))
	must(t, err)

	must(t, p.cmd.Process.Kill())

	// The command holds the other end of the pipe for as long as it lives.
	must(t, r.SetReadDeadline(time.Now().Add(testenv.Patience)))
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the command has not ended: %d, %v", n, err)
	}
}
