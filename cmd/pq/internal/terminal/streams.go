package terminal

import (
	"errors"
	"io"
	"os"
)

// Writable returns why w cannot be written to, if that shows without writing.
//
// If standard output was closed when pq started, Go's runtime has opened the null device in its
// place, for reading and writing. A redirection opens it for only one of them.
func Writable(w io.Writer) error {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}

	if _, err := f.Write(nil); err != nil { // it is open for reading only
		return err
	}

	null, nullErr := os.Stat(os.DevNull)
	info, err := f.Stat()
	if nullErr != nil || err != nil || !os.SameFile(info, null) {
		return nil
	}

	if _, err := f.Read(make([]byte, 1)); err == io.EOF {
		return errors.New("it is closed, or the null device opened for reading and writing " +
			"(to discard items, use >" + os.DevNull + ")")
	}

	return nil
}

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
