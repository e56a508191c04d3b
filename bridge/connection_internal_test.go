package bridge

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// Every subject can be parsed from the server's error.
func FuzzDeniedSubject(f *testing.F) {
	for _, subject := range []string{"a.B", `a"b`, `a\"`, "größe", "\x00\xff", `x" to "_pqbridge.y`, "", "'"} {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		words := fmt.Sprintf("Permissions Violation for Publish to %q", []byte(subject))
		if got, ok := deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)); !ok || got != subject {
			t.Errorf("%q is read as %q", words, got)
		}
		if got, ok := deniedSubject(errors.New(words)); ok {
			t.Errorf("%q is read from another error", got)
		}
		for _, words := range []string{fmt.Sprintf("Permissions Violation for Subscription to %q", subject), subject} {
			_, _ = deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)) // no panic
		}
	})
}
