package child

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// leftBehind is how long the output of processes that a command has left behind counts as its own.
const leftBehind = 2 * time.Second

// tailSize is how much of the end of a command's standard error is kept, in bytes.
const tailSize = 1024

// Stderr is the standard error of a command, which goes on to another stream.
type Stderr struct {
	to   io.Writer
	mine *os.File      // end of the pipe that the command writes to
	done chan struct{} // closed once nobody has the pipe any more

	mu   sync.Mutex
	tail []byte
}

// NewStderr makes c write to to through a pipe. A process that c leaves behind may go on writing,
// so c does not wait for the end of the pipe, as it would for a writer that is no file. Call End
// once c has ended or could not be started.
func NewStderr(c *exec.Cmd, to io.Writer) (*Stderr, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	c.Stderr = write

	s := &Stderr{to: to, mine: write, done: make(chan struct{})}
	go func() { // ends with the last process that has the pipe
		defer close(s.done)
		defer func() { _ = read.Close() }()
		_, _ = io.Copy(s, read)
	}()
	return s, nil
}

// Write passes on what the command writes, and keeps the end of it.
func (s *Stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.tail = append(s.tail, b...)
	s.tail = s.tail[max(len(s.tail)-tailSize, 0):]
	s.mu.Unlock()

	_, _ = s.to.Write(b) // if nobody reads it, the command still can write
	return len(b), nil
}

// End returns once what the command wrote is passed on.
func (s *Stderr) End() {
	_ = s.mine.Close()
	select {
	case <-s.done:
	case <-time.After(leftBehind):
	}
}

// Tail returns the last lines written, up to n bytes, or the end of a longer last line.
func (s *Stderr) Tail(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	text := strings.TrimSpace(strings.ToValidUTF8(string(s.tail), ""))
	if len(text) <= n {
		return text
	}

	text = text[len(text)-n:]
	if _, lines, found := strings.Cut(text, "\n"); found {
		return strings.TrimSpace(lines)
	}

	return strings.ToValidUTF8(text, "") // which may begin within a character
}
