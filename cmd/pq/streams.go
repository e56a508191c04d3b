package main

import (
	"errors"
	"io"
	"os"
)

// writable returns what keeps w from being written to, as far as that can be
// known without writing.
func writable(w io.Writer) error {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if wasClosed(f) {
		return errors.New("it is closed, or the null device open for reading too (to throw items away, use >" + os.DevNull + ")")
	}
	_, err := f.Write(nil) // fails if it is open for reading only
	return err
}

// readable is the same for what is to be read.
func readable(r io.Reader) error {
	if f, ok := r.(*os.File); ok && wasClosed(f) {
		return errors.New("it is closed, or the null device open for writing too (for no input, use <" + os.DevNull + ")")
	}
	return nil
}

// wasClosed reports whether f, one of the standard streams, was closed when pq
// was started. Go's runtime then opens the null device in its place, for reading
// and writing, whereas a redirection opens it for one of them.
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
