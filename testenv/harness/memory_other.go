//go:build !linux

package harness

import (
	"os/exec"
	"testing"
)

// LimitMemory skips the test: only Linux limits the memory of a process.
func LimitMemory(t testing.TB, cmd *exec.Cmd, bytes int64) (cgroup bool) {
	t.Helper()
	t.Skipf("nothing here limits %s to %d MiB of memory", cmd.Path, bytes>>20)
	return false
}
