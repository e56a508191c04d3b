package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// LimitMemory limits the memory of a command, which must not have started yet. If it takes more, it
// dies, and the test fails.
//
// Where this process may make a cgroup, the limit is set there, as in a container: the command can
// find it, and LimitMemory returns true. Elsewhere the limit is on the size of its data
// (RLIMIT_DATA). That is stricter, because memory that was given back counts, and nothing shows it
// to the command: a program that fits itself to its memory needs GOMEMLIMIT too. The log of the
// test says which it is. The command must end before the test does, so end it in a clean-up that is
// registered later.
func LimitMemory(t testing.TB, cmd *exec.Cmd, bytes int64) (cgroup bool) {
	t.Helper()
	name := cmd.Path
	for _, parent := range cgroupParents() {
		place, err := newCgroup(parent, bytes)
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if endCgroup(t, place) {
				t.Errorf("%s was killed for memory: it has %d MiB", name, bytes>>20)
			}
		})

		t.Logf("the cgroup %s limits memory to %d MiB", place, bytes>>20)
		through(cmd, `echo $$ > "$0/cgroup.procs" && exec "$@"`, place)
		return true
	}

	t.Logf("no cgroup can be made here: RLIMIT_DATA limits memory to %d MiB", bytes>>20)
	limitData(cmd, bytes)
	return false
}

// limitData limits the data of a command, which has not started.
func limitData(cmd *exec.Cmd, bytes int64) {
	through(cmd, `ulimit -d "$0" && exec "$@"`, strconv.FormatInt(bytes>>10, 10))
}

// through has a shell run a script with a word, $0, which ends in running the command.
func through(cmd *exec.Cmd, script, word string) {
	cmd.Args = append([]string{"sh", "-c", script, word, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// cgroupParents returns where a cgroup with a limit of memory could be made: below the cgroup of
// this process, or beside it, since in version 2 a cgroup with processes has none below.
func cgroupParents() (parents []string) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[1] == "memory":
			parents = append(parents, filepath.Join("/sys/fs/cgroup/memory", parts[2]))
		case parts[1] == "":
			at := filepath.Join("/sys/fs/cgroup", parts[2])
			parents = append(parents, at, filepath.Dir(at))
		}
	}
	return parents
}

// newCgroup makes a cgroup with a limit, and checks that a process can enter it.
func newCgroup(parent string, bytes int64) (place string, err error) {
	if place, err = os.MkdirTemp(parent, "pq-test-"); err != nil {
		return "", err
	}

	limit := []byte(strconv.FormatInt(bytes, 10))
	set := func(name string, value []byte) error {
		return os.WriteFile(filepath.Join(place, name), value, 0o600)
	}
	if err = set("memory.max", limit); err == nil { // version 2
		_ = set("memory.swap.max", []byte("0"))
	} else if err = set("memory.limit_in_bytes", limit); err == nil {
		_ = set("memory.memsw.limit_in_bytes", limit)
	}
	if err == nil {
		err = Command("/bin/sh", "-c", `echo $$ > "$0/cgroup.procs"`, place).Run()
	}
	if err != nil {
		_ = os.Remove(place)
	}
	return place, err
}

// endCgroup removes a cgroup whose process has ended, and reports whether the kernel ended it.
func endCgroup(t testing.TB, place string) (killed bool) {
	t.Helper()
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		text, _ := os.ReadFile(filepath.Join(place, name))
		_, times, found := strings.Cut(string(text), "oom_kill ")
		killed = killed || found && !strings.HasPrefix(times, "0")
	}

	if err := os.Remove(place); err != nil {
		t.Errorf("the cgroup of a command that has not ended: %v", err)
	}
	return killed
}
