// Package terminal has tables, progress lines, redrawn screens and texts for people, and checks of
// standard streams.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Is reports whether the stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width returns how many columns a terminal has, 0 if the stream is none, or does not say.
func Width(stream any) int {
	f, ok := stream.(*os.File)
	if !ok || !Is(f) {
		return 0
	}
	width, _, _ := term.GetSize(int(f.Fd())) // else 0
	return width
}

// Redraw replaces what a terminal shows by lines of text, as far as there is room for them.
func Redraw(out io.Writer, text string) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	width, height := 80, 24
	if f, ok := out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 1 {
			width, height = w, h
		}
	}

	if room := height - 1; len(lines) > room { // the last line is for the cursor
		lines = append(lines[:room-1], fmt.Sprintf("and %d more", len(lines)-room+1))
	}

	const toTop, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
	frame := toTop
	for _, line := range lines {
		frame += Clip(line, width) + clearLine + "\n"
	}

	_, err := io.WriteString(out, frame+clearRest)
	return err
}
