package harness

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// hungry returns a command that takes an amount of memory, in MiB, and ends.
func hungry(mib int) *exec.Cmd {
	cmd := Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", hungryVariable, mib))
	return cmd
}

// A command with a limit of memory runs below it. Above it, it dies, and the test fails.
func TestLimitMemory(t *testing.T) {
	const limit = 128 << 20
	expects := &expectsFailure{TB: t}
	t.Cleanup(expects.check)

	modest, greedy := hungry(16), hungry(256)
	expects.cgroup = LimitMemory(t, modest, limit)
	LimitMemory(expects, greedy, limit)

	if out, err := modest.CombinedOutput(); err != nil {
		t.Errorf("a command that takes 16 of 128 MiB: %v\n%s", err, out)
	}
	if err := greedy.Run(); err == nil {
		t.Error("a command took 256 MiB, and had 128")
	}
}

// Without a cgroup the data of a command are limited.
func TestLimitData(t *testing.T) {
	if Race {
		t.Skip("the race detector itself takes more data than the limit")
	}
	for mib, dies := range map[int]bool{16: false, 256: true} {
		cmd := hungry(mib)
		limitData(cmd, 128<<20)

		if out, err := cmd.CombinedOutput(); (err != nil) != dies {
			t.Errorf("a command that takes %d of 128 MiB: %v\n%.200s", mib, err, out)
		}
	}
}

// expectsFailure is a test that has to fail in its clean-up if a cgroup limits its command.
type expectsFailure struct {
	testing.TB
	cgroup, failed bool
}

func (e *expectsFailure) Errorf(string, ...any) { e.failed = true }

func (e *expectsFailure) check() {
	if e.failed != e.cgroup {
		e.TB.Errorf("killed in a cgroup: %v, and the test failed: %v", e.cgroup, e.failed)
	}
}
