//go:build unix

package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestRetryDelayGrows(t *testing.T) {
	for _, m := range []struct{ first, second, tenth time.Duration }{
		{time.Second, 2 * time.Second, time.Minute},
		{10 * time.Millisecond, 20 * time.Millisecond, 5120 * time.Millisecond},
		{time.Hour, time.Hour, time.Hour},
		{0, 0, 0},
	} {
		r := &retryDelay{first: m.first}
		if r.after(0) != m.first || r.after(1) != m.first || r.after(2) != m.second || r.after(10) != m.tenth || r.after(1<<40) > max(m.first, longestRetry) {
			t.Errorf("%v: then %v, %v", m.first, r.after(2), r.after(10))
		}
	}
}

// dueIn waits until an item of jobs stays back, and returns for how long.
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

// An item whose command fails stays back for a time, so that it does not fail without end at once.
func TestFailuresPause(t *testing.T) {
	t.Parallel()
	c := newCLIWith(t, map[string]*server.Permissions{"worker": publish([]string{"pq.jobs.pop.*", "pq.jobs.ack.*"}, nil)})
	c.fails(exitError, `; with --ack-wait pq work needs no settings`, "work", "jobs", "--user", "worker", "--password", "worker", "--", "true")
	for _, m := range []struct {
		backoff, flags string
		want           time.Duration
	}{
		{"", "--retry-delay 1h", time.Hour},
		{"2h", "--retry-delay 1h", 2 * time.Hour},
		{"2h", "", 2 * time.Hour},
		// Who may not read the settings cannot know of the backoff.
		{"2h", "--user worker --password worker --ack-wait 1m --retry-delay 1h", time.Hour},
	} {
		c.ok("", "config", "jobs", "backoff="+m.backoff, "max_deliver=9")
		c.ok("", "push", "jobs", "x")
		p := c.start(nil, append(append([]string{"work", "jobs"}, strings.Fields(m.flags)...), "--", "false")...)
		if got := c.dueIn(); got != m.want {
			t.Errorf("backoff %s, %s: comes back in %v, want %v", m.backoff, m.flags, got, m.want)
		}
		p.stop()
		p.says("exit status 1")
		c.ok("", "purge", "jobs", "--yes")
	}
	// By default there is a delay, too.
	c.ok("", "config", "jobs", "backoff=")
	c.ok("", "push", "jobs", "x")
	c.start(nil, "work", "jobs", "--", "false")
	c.dueIn()
}

// pq work jobs -- cat | head -1 ends, and costs no other item a delivery.
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
			p.says("pq: standard output: the reader has gone (broken pipe)", "nobody reads standard output any more")
			if got := c.ok("", "ls"); strings.Contains(got, "jobs-dead") {
				t.Errorf("there are %s", got)
			}
		})
	}
}

// Nobody is left to end the command of a pq work that is killed, and somebody else gets its item.
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
	must(t, r.SetReadDeadline(time.Now().Add(testenv.Patience)))
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the command has not ended: %d, %v", n, err)
	}
}
