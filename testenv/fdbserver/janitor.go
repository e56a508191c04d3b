//go:build fdb

package fdbserver

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// janitor is a process that kills a server and removes its folder once the process that
// started it closes a pipe or ends, in whatever way: after a panic or a time limit of a
// test, no clean-up of ours runs.
type janitor struct {
	pipe *os.File
	cmd  *exec.Cmd
}

// janitorScript reads the server's process id, again after each restart, and 0 while
// there is no server. A dying process can add a file while the folder is being removed,
// hence the second attempt.
const janitorScript = `
pid=0
while read -r line; do pid=$line; done
if [ "$pid" != 0 ]; then kill -9 "$pid" 2>/dev/null; fi
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
`

func startJanitor(dir string) (*janitor, error) {
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "janitor", dir)
	cmd.Stdin = in
	// An interrupt of the tests must not end the janitor too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		pipe.Close()
		return nil, err
	}
	return &janitor{pipe: pipe, cmd: cmd}, nil
}

// watch tells which process to kill, or 0 for none.
func (j *janitor) watch(pid int) error {
	_, err := fmt.Fprintln(j.pipe, pid)
	return err
}

// finish makes the janitor do its work, and waits for it.
func (j *janitor) finish() error {
	if err := j.pipe.Close(); err != nil {
		return err
	}
	return j.cmd.Wait()
}
