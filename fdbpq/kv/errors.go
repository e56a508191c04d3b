package kv

import (
	"fmt"
	"strings"
)

// WithCause returns an error that wraps err and cause. Its text is err's text, followed by the
// reason unless that is empty. Anybody may see it. The text of cause is only for operators of the
// store, who get it from [Detail].
func WithCause(err error, reason string, cause error) error {
	text := err.Error()
	if reason != "" {
		text += ": " + reason
	}
	return &explained{text: text, err: err, cause: cause}
}

type explained struct {
	text       string
	err, cause error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() []error { return []error{e.err, e.cause} }

// Detail returns the text of err followed by the texts of all causes that [WithCause] has hidden in
// it, for a log that only operators read. err must not be nil.
func Detail(err error) string {
	var causes []string
	collectCauses(err, &causes)
	if len(causes) == 0 {
		return err.Error()
	}
	return err.Error() + " (" + strings.Join(causes, "; ") + ")"
}

// collectCauses appends the texts of the causes that WithCause put into err.
func collectCauses(err error, causes *[]string) {
	if e, ok := err.(*explained); ok {
		*causes = append(*causes, Detail(e.cause)) // with what the cause hides itself
		err = e.err
	}

	switch wrapping := err.(type) {
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			collectCauses(inner, causes)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapping.Unwrap() {
			collectCauses(inner, causes)
		}
	}
}

// OptionError is a bad value in one field of the Options of a package. Validate of an engine, and
// of the packages above, returns it, so that a program can name the setting that the field came
// from.
type OptionError struct {
	Package string // name of the package with the Options
	Field   string // name of the field
	Value   any    // as it was set, without secrets
	Want    string // what is allowed
}

// Error names the field, its value and the values allowed.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: %s is %v: want %s", e.Package, e.Field, e.Value, e.Want)
}
