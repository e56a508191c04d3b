// Package terminal is what pq needs of terminals and standard streams: tables, progress bars, a
// screen that is drawn again and again, and texts for people.
package terminal

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// Coloured reports whether what is written to the stream may have colours.
func Coloured(stream any) bool {
	return Is(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

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

// Unicode reports whether the locale says that the terminal shows more than ASCII.
func Unicode() bool {
	for _, variable := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := os.Getenv(variable); locale != "" {
			locale = strings.ToLower(strings.ReplaceAll(locale, "-", ""))
			return strings.Contains(locale, "utf8")
		}
	}
	return false
}
