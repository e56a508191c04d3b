// Package exit tells errors apart that end pq with different exit codes.
package exit

import "fmt"

// UsageError is a mistake in the command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a text as fmt.Errorf writes it.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// InputError is bad input of another kind that was noticed before anything was sent: in the
// environment, a context, or a file. The help of the command does not help there.
type InputError struct{ Err error }

func (e InputError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e InputError) Unwrap() error { return e.Err }
