package terminal

import "io"

// ReaderGone returns a channel that is closed once nobody can read any more what is written to w.
// What waits for that lives as long as the process.
func ReaderGone(w io.Writer) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		if NoReader(w, true) {
			close(gone)
		}
	}()
	return gone
}
