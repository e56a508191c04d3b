// Package exit has the errors that end pq with exit code 2.
package exit

import "fmt"

// Error is bad input that was noticed before anything was sent. With Usage it is a mistake in the
// command line, so the help of the command helps. Otherwise it is in the environment, a context or
// a file.
type Error struct {
	Err   error
	Usage bool
}

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e Error) Unwrap() error { return e.Err }

// Usage returns an Error about the command line.
func Usage(err error) error { return Error{err, true} }

// Usagef returns an Error about the command line with a text as fmt.Errorf writes it.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }
