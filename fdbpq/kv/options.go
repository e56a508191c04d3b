package kv

import "fmt"

// OptionError says what is wrong with one field of a package's Options. Engines and the
// packages above return it from Validate, so that a program can name the setting the
// field came from.
type OptionError struct {
	Package string // of the Options
	Field   string
	Value   any    // as it was set, without secrets
	Want    string // what is allowed
}

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: %s is %v: want %s", e.Package, e.Field, e.Value, e.Want)
}
