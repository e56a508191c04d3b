package terminal

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Grouped writes n for people: 1,000.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Bar draws a number as a part of the largest one, in up to eight columns.
func Bar(n, most int64) string {
	eighths := []rune(" ▏▎▍▌▋▊▉█")
	most = max(most, 1)
	length := int((64*n + most - 1) / most) // of 64; something for each n above 0
	return strings.Repeat("█", length/8) + strings.TrimSpace(string(eighths[length%8]))
}

// Plural says how many things there are.
func Plural[T int | int64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Grouped(int64(n)) + " " + thing + "s"
}

// InWords writes a duration for people: 340 ms, 1.5 s, 2m5s.
func InWords(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// AsOf is a line that says what time it is, "" unless out is a terminal.
func AsOf(out io.Writer) string {
	if !Is(out) {
		return ""
	}
	return time.Now().Format("as of 15:04:05 MST\n")
}

// Short writes a duration as two or more of one unit: 119s, 3m, 40h, 12d.
func Short(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Plain writes what somebody else has chosen as one line, in which no terminal finds a command.
func Plain(value string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r):
			return '.'
		}
		return r
	}, value)
}

// Lines is Plain for lines of text with tabs.
func Lines(text string) string { return whole.ReplaceAllStringFunc(text, Plain) }

// whole finds what Lines may change.
var whole = regexp.MustCompile(`[^\n\t]+`)

// WholeRunes returns a text that was cut without the beginning of a character at its end.
func WholeRunes(text []byte) []byte {
	for n := range min(utf8.UTFMax, len(text)) {
		if whole := text[:len(text)-n]; utf8.Valid(whole) {
			return whole
		}
	}
	return text
}

// Clip cuts a line for a terminal.
func Clip(line string, width int) string { return text.Snip(line, max(width, 0), "~") }
