//go:build unix

package terminal

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// NoReader reports whether nobody can read from w any more, a pipe or a socket. With wait, it
// returns once that is so. A process that does not write would not notice.
func NoReader(w io.Writer, wait bool) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}

	if info, err := f.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return false
	}

	timeout := 0
	if wait {
		timeout = -1
	}

	for {
		// Without events to wait for, it returns for errors only.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd())}}, timeout)
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}
