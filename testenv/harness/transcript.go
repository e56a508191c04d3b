package harness

import (
	"bytes"
	"sync"
)

// Transcript collects text that is read meanwhile, such as a log. Its methods are safe for
// concurrent use.
type Transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds text.
func (t *Transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

// String returns all of the text so far.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
