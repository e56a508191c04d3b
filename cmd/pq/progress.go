package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// redrawEvery is the least time between two drawings of a progress bar.
const redrawEvery = 100 * time.Millisecond

// progress is a progress bar on a terminal. What is written to it goes to the
// terminal in lines of their own. It is safe for concurrent use.
type progress struct {
	terminal io.Writer
	whole    int64 // -1 if unknown

	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	drawn time.Time
}

// newProgress returns a bar that is full when whole is done. If whole is -1, it
// shows only that there is progress.
func newProgress(terminal io.Writer, whole int64) *progress {
	return &progress{terminal: terminal, whole: whole, bar: progressbar.NewOptions64(whole,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSpinnerType(9),              // of ASCII characters
		progressbar.OptionSetSpinnerChangeInterval(0), // else a goroutine turns it
		progressbar.OptionSetTheme(progressbar.ThemeASCII),
	)}
}

// show draws the bar with what is done so far, unless it was drawn just now.
func (p *progress) show(done int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.drawn) < redrawEvery {
		return
	}
	p.drawn = now
	// A bar that cannot be drawn is no reason to stop.
	p.bar.Describe(p.fit(text))
	if p.whole >= 0 {
		_ = p.bar.Set64(min(done, p.whole-1)) // at the end it would be gone
	}
}

// fit cuts text to the width that the terminal has beside the rest of the bar.
func (p *progress) fit(text string) string {
	const rest = 12
	f, ok := p.terminal.(*os.File)
	if !ok {
		return text
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return text[:min(len(text), max(0, width-rest))]
	}
	return text
}

// clear removes the bar. The next call of show draws it again.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bar.Clear()
}

// Write writes a message to the terminal in place of the bar.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bar.Clear()
	return p.terminal.Write(b)
}
