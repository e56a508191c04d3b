//go:build unix

// Package child keeps the processes of a command together.
package child

import (
	"os/exec"
	"syscall"
)

// Isolate gives a command a process group of its own, so that Ctrl-C does not reach it, and the end
// of its context ends all of its processes. The result kills processes that it left behind.
func Isolate(c *exec.Cmd) (killRest func()) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithPQ(c.SysProcAttr)
	cancelled := false // Run waits for Cancel
	c.Cancel = func() error {
		cancelled = true
		return syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	}

	return func() {
		if cancelled {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // fails if there are none
		}
	}
}
