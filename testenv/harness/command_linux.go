package harness

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the child. It does so when the thread that started the child ends, which
// for a Go program is when the process ends: threads only end before if a goroutine is locked to
// one.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
