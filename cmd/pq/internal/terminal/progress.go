package terminal

import (
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// redrawEvery is the least time between two drawings of a progress line.
const redrawEvery = 100 * time.Millisecond

// Progress is a line on a terminal that says how far something is. A nil Progress shows nothing.
type Progress struct {
	terminal io.Writer
	drawn    time.Time // last
	width    int       // columns of the line that is drawn, 0 without one
}

// NewProgress returns a line, nil without a terminal. Short work shows no line.
func NewProgress(terminal io.Writer) *Progress {
	if !Is(terminal) {
		return nil
	}
	return &Progress{terminal: terminal, drawn: time.Now()}
}

// Show draws the line, unless it was drawn just now.
func (p *Progress) Show(text string) {
	if p == nil || time.Since(p.drawn) < redrawEvery {
		return
	}

	p.drawn = time.Now()
	if width := Width(p.terminal); width > 0 {
		text = Clip(text, width-1) // the last column is for the cursor
	}

	p.Clear()
	p.width = utf8.RuneCountInString(text)
	_, _ = io.WriteString(p.terminal, text) // a line that cannot be drawn is no reason to stop
}

// Clear removes the line. The next call of Show draws it again.
func (p *Progress) Clear() {
	if p != nil && p.width > 0 {
		_, _ = io.WriteString(p.terminal, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}
