//go:build !linux

package harness

import (
	"os"
	"os/exec"
	"sync"
)

// alive is a pipe whose write end only this process has, so it closes when the process ends.
var alive = sync.OnceValues(func() (*os.File, error) {
	r, w, err := os.Pipe()
	keep = w
	return r, err
})

var keep *os.File // must not be collected, which would close it

// watch waits for the pipe in the background, and becomes the program.
const watch = `(read -r x <&3; kill -9 $$) </dev/null >/dev/null 2>&1 & exec 3<&-; exec "$@"`

// tie has a shell become the child after it started a process that waits for the end of the pipe.
func tie(cmd *exec.Cmd) {
	pipe, err := alive()
	if err != nil || cmd.Err != nil {
		return // Start reports the error
	}
	cmd.ExtraFiles = []*os.File{pipe}
	cmd.Args = append([]string{"sh", "-c", watch, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}
