//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/testenv"
)

// has waits until there are these queues, as pq ls prints them.
func (c *cli) has(want string) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		if got := c.ok("", "ls"); got != want {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}

// pq work acknowledges items whose command succeeds, and gives back or buries the others.
func TestWork(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "max_deliver=2")
	c.ok("", "push", "jobs", "good", "-p", "1", "-H", "Trace-Id:abc", "--group", "acme")

	if it := c.item("peek", "jobs"); it.Group != "acme" {
		t.Errorf("peeked %+v, want the group acme", it)
	}
	if it := c.item("items", "jobs"); it.Group != "acme" {
		t.Errorf("listed %+v, want the group acme", it)
	}

	c.ok("", "push", "jobs", "bad", "-p", "2")
	c.ok("", "push", "jobs", "worse", "-p", "3")
	script := `read -r value
echo "$value $PQ_QUEUE $PQ_PRIORITY $PQ_DELIVERIES $PQ_HEADER_TRACE_ID$PQ_GROUP" \
	"${#PQ_ID} $PQ_PUSHED_AT" | sed 's/ [0-9T:.-]*Z$/ then/; s/ 3[0-9] then/ id then/'
case $value in bad) exit 1;; worse) exit 65;; esac`
	inherited := shell("export PQ_GROUP=outer PQ_PRIORITY=9 PQ_HEADER_TRACE_ID=outer; ", "")
	p := c.start(inherited, "work", "jobs", "--retry-delay", "0", "--drop-on", "65", "--", "sh",
		"-c", script)
	c.has("pq\tjobs\t0\t0\t0\npq\tjobs-dead\t2\t0\t0\n")
	p.stop()

	want := "good jobs 1 1 abcacme id then\nbad jobs 2 1  id then\nbad jobs 2 2  id then\nworse " +
		"jobs 3 1  id then\n"
	if got := p.stdout.String(); got != want {
		t.Errorf("the commands printed\n%swant\n%s", got, want)
	}

	p.says("finishing what is under way; another signal ends the commands", "sh: exit status 1")
	dead := c.item("pop", "jobs-dead", "-n", "1")
	if *dead.Value != "bad" {
		t.Errorf("dead: %+v", dead)
	}
}

// What a command prints is the result of a job that is kept, unless it is too large. It is printed
// in any case.
func TestWorkKeepsResults(t *testing.T) {
	c, _ := newCLI(t)
	kept := c.push("a", "--keep", "1h")
	large := c.push("b", "--keep", "1h")
	c.push("c")
	p := c.start(nil, "work", "jobs", "--", "sh", "-c",
		`read -r value; echo "did $value"; if test $value = b; then printf "%070000d" 1; fi`)
	c.has("pq\tjobs\t0\t0\t0\n")
	p.stop()

	c.prints("did a\n", "result", "jobs", kept)
	c.prints("", "result", "jobs", large)
	p.says("too large: it is done without a result")
	if printed := p.stdout.String(); !strings.HasPrefix(printed, "did a\ndid b\n0") ||
		!strings.HasSuffix(printed, "1did c\n") {
		t.Errorf("printed %.50q and %d bytes", printed, len(printed))
	}

	c.ok("", "config", "jobs", "keep=1h")
	p = c.start(nil, "work", "jobs", "--", "cat")
	c.prints("d", "push", "jobs", "d", "--wait", "1h", "--keep", "1m")
	later := c.push("e")
	c.prints("e", "result", "jobs", later, "--wait", "1h")
	p.stop()
}

// What a command says at last is the reason of its dead letter, and pq work says what becomes of
// the item. Processes that the command has left behind hold up nothing, and can still write.
func TestWorkSaysWhatBecomesOfItems(t *testing.T) {
	c, _ := newCLI(t)
	dir := t.TempDir()
	c.ok("", "config", "jobs", "max_deliver=2", "backoff=10ms")
	c.ok("", "push", "jobs", "a")
	script := `(while ! test -e ` + filepath.Join(dir, "go") +
		`; do sleep 0.01; done; echo later >&2) &
echo looking >&2; echo "the disk is full" >&2; exit 1`
	p := c.start(nil, "work", "jobs", "--", "sh", "-c", script)
	c.has("pq\tjobs\t0\t0\t0\npq\tjobs-dead\t1\t0\t0\n")
	p.says("pq: 1 ready item in jobs, 0 leased, 0 delayed\n", "looking\nthe disk is full\n",
		`msg="a job failed" queue=jobs id=`, "deliveries=1 max_deliver=2 error=",
		"deliveries=2 max_deliver=2 error=")
	if dead := c.item("peek", "jobs-dead"); dead.DeadLetter.Error !=
		"sh: exit status 1: looking the disk is full" {
		t.Errorf("it died of %+v", dead.DeadLetter)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))

	p.sees(&p.stderr, "later\nlater\n")
	p.stop()

	c.ok("", "push", "jobs", "b")
	p = c.start(nil, "work", "jobs", "--drop-on", "65", "--", "sh", "-c",
		`printf "%0300d\nno such user" 0 >&2; exit 65`)
	c.has("pq\tjobs\t0\t0\t0\npq\tjobs-dead\t2\t0\t0\n")
	p.stop()

	dead := c.item("peek", "jobs-dead", "--max")
	if dead.DeadLetter.Reason != "sh: exit status 65: no such user" {
		t.Errorf("it died of %+v", dead.DeadLetter)
	}
}

// What pq work waits for.
func TestWaitText(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	soon := now.Add(5 * time.Second)

	for want, info := range map[string]*client.QueueInfo{
		"1,000 ready items in jobs, 1 leased, 0 delayed": {
			Ready:  1000,
			Leased: 1,
		},
		"queue jobs is not in use yet: waiting for items": {},
		"jobs is paused until pq resume: 1 ready item in jobs, 0 leased, 0 delayed": {
			Ready:    1,
			Settings: client.Settings{PauseUntil: target.Forever},
		},
		"jobs is paused until 2030-01-02T03:04:10.000000Z: " +
			"0 ready items in jobs, 0 leased, 2 delayed": {
			Delayed:  2,
			Settings: client.Settings{PauseUntil: soon},
		},
	} {
		if got := waitText("jobs", info, now); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
}

// A command that takes too long has failed, and is ended.
func TestJobTimeout(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "max_deliver=1")

	for _, timeout := range []string{"100ms", "3s", "1m"} {
		c.ok("", "push", "jobs", "a")
		p := c.start(nil, "work", "jobs", "--job-timeout", timeout, "--", "sh", "-c",
			"echo begun >&2; exec sleep 1000")
		c.has("pq\tjobs\t0\t0\t0\npq\tjobs-dead\t1\t0\t0\n")
		p.stop()

		switch why := c.item("pop", "jobs-dead").DeadLetter.Error; why {
		case "timed out: sh: signal: terminated: begun":
			return
		// Before it began: the machine is busy.
		case "timed out: sh: context deadline exceeded", "timed out: sh: signal: terminated":
		default:
			t.Fatalf("it died of %q", why)
		}
	}
	t.Error("no command began before it timed out")
}

// The first signal lets commands finish, also if a terminal sends it to all processes.
func TestSignalLetsWorkFinish(t *testing.T) {
	c, _ := newCLI(t)
	dir := t.TempDir()
	c.ok("a\nb\nc\n", "push", "--fifo", "jobs", "--lines")
	group := func(cmd *exec.Cmd) { attributes(cmd).Setpgid = true }
	p := c.start(group, "work", "--fifo", "jobs", "--jobs", "2", "--", "sh", "-c",
		`echo begun; while ! test -e `+filepath.Join(dir, "go")+`; do sleep 0.01; done; echo ended`)
	p.sees(&p.stdout, "begun\nbegun\n")
	must(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT))

	p.sees(&p.stderr, finishing)
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	p.ends(exitOK)
	p.printed("begun\nbegun\nended\nended\n")
	c.has("q\tjobs\t1\t0\t0\n")
}

// Another signal ends the commands, with all processes that they have started, and their items go
// back.
func TestAnotherSignalEndsCommands(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a")
	p := c.start(nil, "work", "jobs", "--", "sh", "-c", "echo begun; sleep 1000 & wait")
	p.sees(&p.stdout, "begun")
	p.signal(syscall.SIGINT)
	p.sees(&p.stderr, finishing)
	p.signalsUntilEnd(syscall.SIGINT)
	p.ends(exitSignal + int(syscall.SIGINT))
	c.has("pq\tjobs\t1\t0\t0\n")

	it := c.item("lease", "jobs")
	if it.Deliveries != 1 {
		t.Errorf("the delivery counted: %+v", it)
	}
}

// Without NATS no item can be given back, and nobody waits for that.
func TestAnotherSignalWithoutNATS(t *testing.T) {
	c, env := newCLI(t)
	c.ok("", "push", "jobs", "a")
	p := c.start(nil, "work", "jobs", "--ack-wait", "1h", "--timeout", "1h", "--", "sh", "-c",
		"echo begun; exec sleep 1000")
	p.sees(&p.stdout, "begun")
	env.NATS.Stop()
	p.signal(syscall.SIGINT)
	p.sees(&p.stderr, finishing)
	p.signalsUntilEnd(syscall.SIGTERM)
	p.ends(exitSignal + int(syscall.SIGTERM))
	p.says("it comes back when its lease is over")
}

// A command that cannot be started costs no item a delivery.
func TestCommandThatCannotStart(t *testing.T) {
	c, _ := newCLI(t)
	script := filepath.Join(t.TempDir(), "script")
	must(t, os.WriteFile(script, []byte("no program\x00"), 0o700))

	c.ok("", "config", "jobs", "max_deliver=1")
	c.ok("", "push", "jobs", "a")
	p := c.start(nil, "work", "jobs", "--", script)
	p.sees(&p.stderr, "cannot start the command, trying again in 1s")
	must(t, os.WriteFile(script+".new", []byte("#!/bin/sh\necho done $PQ_DELIVERIES\n"), 0o700))
	must(t, os.Rename(script+".new", script))

	p.sees(&p.stdout, "done 1\n")
	p.stop()
	c.has("pq\tjobs\t0\t0\t0\n")
}

// A command says how far its job is through PQ_PROGRESS_FD, a line each.
func TestWorkTellsProgress(t *testing.T) {
	c, _ := newCLI(t)
	id := c.push("a")
	p := c.start(nil, "work", "jobs", "--", "sh", "-c",
		`{ echo one quarter; echo "half ✓"; } >&$PQ_PROGRESS_FD; exec sleep 600`)

	testenv.Eventually(t, func() error {
		stdout, _, _ := c.run("", "result", "jobs", id, "--json")
		if !strings.Contains(stdout, `"progress":"half ✓"`) {
			return fmt.Errorf("the job is %s: want its progress to be half ✓", stdout)
		}
		return nil
	})
	p.signalsUntilEnd(syscall.SIGTERM)
}
