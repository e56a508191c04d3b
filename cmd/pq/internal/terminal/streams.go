package terminal

import (
	"errors"
	"io"
	"os"
)

// Writable returns why w cannot be written to, if that shows without writing.
func Writable(w io.Writer) error {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if wasClosed(f) {
		return errors.New("it is closed, or the null device opened for reading and writing (to discard items, use >" + os.DevNull + ")")
	}
	_, err := f.Write(nil) // fails if it is open for reading only
	return err
}

// Readable returns why r cannot be read, if that shows without reading.
func Readable(r io.Reader) error {
	if f, ok := r.(*os.File); ok && wasClosed(f) {
		return errors.New("it is closed, or the null device opened for reading and writing (for no input, use <" + os.DevNull + ")")
	}
	return nil
}

// wasClosed reports whether f, a standard stream, was closed when pq started. Go's
// runtime then opens the null device in its place, for reading and writing; a
// redirection opens it for only one of them.
func wasClosed(f *os.File) bool {
	null, err := os.Stat(os.DevNull)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil || !os.SameFile(info, null) {
		return false
	}
	_, readErr := f.Read(make([]byte, 1))
	_, writeErr := f.Write(nil)
	return readErr == io.EOF && writeErr == nil
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
