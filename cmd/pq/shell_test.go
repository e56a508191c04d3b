//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// inShell has shells find pq, which is this program, and the server.
func (c *cli) inShell() func(*exec.Cmd) {
	dir := c.t.TempDir()
	must(c.t, os.Symlink(os.Args[0], filepath.Join(dir, "pq")))

	return func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), mainVariable+"=1", "NATS_URL="+c.server,
			"PATH="+dir+":"+os.Getenv("PATH"))
	}
}

func script(name string) string { return filepath.Join(root, "docs", "example", "shell", name) }

// The script docs/example/shell/pq.sh works, also for the second time within the duplicate window.
func TestShellExample(t *testing.T) {
	c, _ := newCLI(t)
	find := c.inShell()

	for range 2 {
		cmd := harness.Command(script("pq.sh"))
		find(cmd)
		cmd.Stderr = t.Output()

		want := "\"duplicate\":true\n2\n\"priority\":1\n\"priority\":5\nthe queue is empty\n"
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%v: it printed\n%swant\n%s", err, out, want)
		}
	}
}

// The script docs/example/shell/worker.sh handles each item, and failed ones again.
func TestShellWorker(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "write the report", "-p", "5")
	c.ok("", "push", "jobs", "call back", "-p", "3")
	find := c.inShell()

	p := c.start(func(cmd *exec.Cmd) {
		find(cmd)
		cmd.Path, cmd.Args = script("worker.sh"), []string{"worker.sh", "--retry-delay", "0"}
	})

	want := "call back (delivery 1)\ncall back (delivery 2)\nwrite the report (delivery 1)\n"
	p.sees(&p.stdout, want)
	c.has("")
	p.stop()
	p.says("the line is busy")
}
