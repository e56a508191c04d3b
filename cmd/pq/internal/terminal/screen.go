package terminal

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen is a terminal on which each frame replaces the one before.
type Screen struct {
	out  io.Writer
	last string
}

// What a Screen writes beside its frames.
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l" // the other screen, and no cursor
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	ToTop       = "\x1b[H"
	ClearLine   = "\x1b[K"
	ClearRest   = "\x1b[J"
)

// NewScreen switches the terminal to its other screen.
func NewScreen(out io.Writer) *Screen {
	_, _ = io.WriteString(out, EnterScreen) // the first frame fails too
	return &Screen{out: out}
}

// Close leaves the last frame on the terminal's own screen.
func (s *Screen) Close() { _, _ = io.WriteString(s.out, LeaveScreen+s.last) }

// Show draws a frame, for which it says how much room there is.
func (s *Screen) Show(frame func(width, height int, unicode bool) string) error {
	width, height := 80, 24
	if f, ok := s.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	s.last = frame(width, height, Unicode())
	_, err := io.WriteString(s.out, ToTop+replaceNewlines(s.last)+ClearRest)
	return err
}

// replaceNewlines ends lines so that nothing is left of those that were there.
func replaceNewlines(frame string) string {
	return strings.ReplaceAll(frame, "\n", ClearLine+"\r\n")
}
