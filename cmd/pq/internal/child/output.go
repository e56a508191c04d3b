package child

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// leftBehind is how long the output of processes that a command has left behind counts as its own.
const leftBehind = 2 * time.Second

// tailSize is how much of the end of a command's standard error is kept, in bytes.
const tailSize = 1024

// Output is what a command writes to a stream, which goes on to another stream.
type Output struct {
	to   io.Writer
	mine *os.File      // end of the pipe that the command writes to
	done chan struct{} // closed once nobody has the pipe any more

	mu   sync.Mutex
	kept []byte
	keep func(kept, more []byte) []byte
}

// NewStderr makes c write its standard error to to through a pipe, and keeps the end of it. A
// process that c leaves behind may go on writing, so c does not wait for the end of the pipe, as it
// would for a writer that is no file. Call End once c has ended or could not be started.
func NewStderr(c *exec.Cmd, to io.Writer) (*Output, error) {
	return newOutput(&c.Stderr, to, func(kept, more []byte) []byte {
		kept = append(kept, more...)
		return kept[max(len(kept)-tailSize, 0):]
	})
}

// NewStdout is NewStderr for standard output, and keeps the first bytes of it, up to most.
func NewStdout(c *exec.Cmd, to io.Writer, most int) (*Output, error) {
	return newOutput(&c.Stdout, to, func(kept, more []byte) []byte {
		return append(kept, more[:min(len(more), most-len(kept))]...)
	})
}

func newOutput(
	stream *io.Writer, to io.Writer, keep func(kept, more []byte) []byte,
) (*Output, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	*stream = write

	s := &Output{to: to, mine: write, done: make(chan struct{}), keep: keep}
	go func() { // ends with the last process that has the pipe
		defer close(s.done)
		defer func() { _ = read.Close() }()
		_, _ = io.Copy(s, read)
	}()
	return s, nil
}

// Write passes on what the command writes, and keeps a part of it.
func (s *Output) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.kept = s.keep(s.kept, b)
	s.mu.Unlock()

	_, _ = s.to.Write(b) // if nobody reads it, the command still can write
	return len(b), nil
}

// End returns once what the command wrote is passed on. There is nothing to do for nil, and when
// it is called again.
func (s *Output) End() {
	if s == nil {
		return
	}
	_ = s.mine.Close()
	select {
	case <-s.done:
	case <-time.After(leftBehind):
	}
}

// Kept returns the output that was kept.
func (s *Output) Kept() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Tail returns the last lines written, up to n bytes, or the end of a longer last line.
func (s *Output) Tail(n int) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(s.Kept()), ""))
	if len(text) <= n {
		return text
	}

	text = text[len(text)-n:]
	if _, lines, found := strings.Cut(text, "\n"); found {
		return strings.TrimSpace(lines)
	}

	return strings.ToValidUTF8(text, "") // which may begin within a character
}
