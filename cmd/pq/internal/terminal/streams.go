package terminal

import (
	"errors"
	"io"
	"os"
)

// Writable returns an error if w was closed when pq started: then Go's runtime has opened the null
// device in its place, for reading as well, which a redirection to it does not.
func Writable(w io.Writer) error {
	if f, ok := w.(*os.File); ok {
		if _, err := f.Write(nil); err != nil { // it is open for reading only
			return err
		}
		null, nullErr := os.Stat(os.DevNull)
		info, err := f.Stat()
		if nullErr == nil && err == nil && os.SameFile(info, null) {
			if _, err := f.Read(make([]byte, 1)); err == io.EOF {
				return errors.New("standard output is closed: to discard items, use >/dev/null")
			}
		}
	}
	return nil
}

// ReaderGone returns a channel that is closed once nobody can read from w any more. What waits for
// that lives as long as the process.
func ReaderGone(w io.Writer) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		if NoReader(w, true) {
			close(gone)
		}
	}()
	return gone
}
