package terminal

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// redrawEvery is the least time between two drawings of a progress bar.
const redrawEvery = 100 * time.Millisecond

// Progress is a progress bar on a terminal, which it gives up for messages that are
// written to it. A nil Progress shows nothing. It is safe for concurrent use.
type Progress struct {
	terminal io.Writer
	whole    int64 // -1 if unknown

	mu      sync.Mutex
	bar     *progressbar.ProgressBar
	drawn   time.Time // last
	visible bool
}

// NewProgress returns a bar that is full when whole is done. If whole is -1, it
// shows only that there is progress. What is over quickly has no bar.
func NewProgress(terminal io.Writer, whole int64) *Progress {
	return &Progress{terminal: terminal, whole: whole, drawn: time.Now(), bar: progressbar.NewOptions64(whole,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSpinnerType(9),              // of ASCII characters
		progressbar.OptionSetSpinnerChangeInterval(0), // else a goroutine turns it
		progressbar.OptionSetTheme(progressbar.ThemeASCII),
	)}
}

// Show draws the bar with what is done so far, unless it was drawn just now.
func (p *Progress) Show(done int64, text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	now := time.Now()
	if now.Sub(p.drawn) < redrawEvery {
		return
	}
	p.drawn, p.visible = now, true

	// A bar that cannot be drawn is no reason to stop.
	p.bar.Describe(p.fit(text))
	if p.whole >= 0 {
		_ = p.bar.Set64(min(done, p.whole-1)) // at the end it would be gone
	}
}

// fit returns as much of text, which consists of parts with commas between them, as
// the terminal has room for beside the rest of the bar.
func (p *Progress) fit(text string) string {
	const rest = 14
	f, ok := p.terminal.(*os.File)
	if !ok {
		return text
	}
	width, _, err := term.GetSize(int(f.Fd()))
	for err == nil && width > 0 && text != "" && len(text) > width-rest {
		text = text[:max(0, strings.LastIndex(text, ", "))]
	}
	return text
}

// Clear removes the bar. The next call of Show draws it again.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
}

func (p *Progress) clearLocked() {
	if p.visible {
		_ = p.bar.Clear()
		p.visible = false
	}
}

// Write writes a message to the terminal in place of the bar.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	return p.terminal.Write(b)
}
