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

	"github.com/pqbridge/pqbridge/testenv"
)

// has waits until pq ls prints these lines.
func (c *cli) has(want string) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		if got := c.ok("", "ls"); got != want {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}

func TestWork(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "config", "jobs", "max_deliver=2")
	c.ok("", "push", "jobs", "good", "-p", "1", "-H", "Trace-Id:abc")
	c.ok("", "push", "jobs", "bad", "-p", "2")
	c.ok("", "push", "jobs", "worse", "-p", "3")
	script := `read -r value
echo "$value $PQ_QUEUE $PQ_PRIORITY $PQ_DELIVERIES $PQ_HEADER_TRACE_ID ${#PQ_ID} $PQ_PUSHED_AT" | sed 's/ [0-9T:.-]*Z$/ then/; s/ 3[0-9] then/ id then/'
case $value in bad) exit 1;; worse) exit 65;; esac`
	p := c.start(nil, "work", "jobs", "--retry-delay", "0", "--drop-on", "65", "--", "sh", "-c", script)
	c.has("pq\tjobs\t0\t0\t0\npq\tjobs-dead\t2\t0\t0\n")
	p.stop()
	want := "good jobs 1 1 abc id then\nbad jobs 2 1  id then\nbad jobs 2 2  id then\nworse jobs 3 1  id then\n"
	if got := p.stdout.String(); got != want {
		t.Errorf("the commands printed\n%swant\n%s", got, want)
	}
	p.says("finishing what is under way; another signal ends the commands", "sh: exit status 1")
	dead := c.item("pop", "jobs-dead", "-n", "1")
	if *dead.Value != "bad" {
		t.Errorf("dead: %+v", dead)
	}
}

// The first signal lets commands finish, also if a terminal sends it to all processes.
func TestSignalLetsWorkFinish(t *testing.T) {
	c, _ := newCLI(t)
	dir := t.TempDir()
	c.ok("a\nb\nc\n", "push", "--fifo", "jobs", "--lines")
	group := func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
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
	p := c.start(nil, "work", "jobs", "--ack-wait", "1h", "--timeout", "1h", "--", "sh", "-c", "echo begun; exec sleep 1000")
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

func TestWorkThatCannotBegin(t *testing.T) {
	c, _ := newCLI(t)
	for _, args := range []string{"work", "work jobs", "work jobs true", "work jobs --", "work -- jobs true"} {
		c.fails(exitUsage, "want a queue and a command: pq work QUEUE -- COMMAND", strings.Fields(args)...)
	}
	c.fails(exitUsage, "exit codes from 1 to 255", "work", "jobs", "--drop-on", "0", "--", "true")
	c.fails(exitUsage, "at least 1", "work", "jobs", "--jobs", "0", "--", "true")
	c.fails(exitError, "no bridge is listening on other.jobs.info: is pqbridge running?", "work", "jobs", "--prefix", "other", "--", "true")
}

func TestVariableNames(t *testing.T) {
	for header, want := range map[string]string{"Trace-Id": "TRACE_ID", "x.y/z": "X_Y_Z", "A1": "A1", "é": "_"} {
		if got := variableName(header); got != want {
			t.Errorf("%s is %s, want %s", header, got, want)
		}
	}
}
