package kv_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// The cause of an error is in its chain and its detail, not in its text.
func TestWithCause(t *testing.T) {
	cause := &fs.PathError{Op: "write", Path: "/secret/1", Err: syscall.ENOSPC}
	inner := kv.WithCause(kv.ErrUnavailable, "disk full", cause)
	outer := kv.WithCause(kv.ErrCommitUnknown, "", fmt.Errorf("/secret/2: %w", inner))
	err := fmt.Errorf("batch: %w",
		errors.Join(outer, kv.WithCause(kv.ErrClosed, "ended", errors.New("/secret/3"))))

	for _, want := range []error{
		kv.ErrUnavailable,
		kv.ErrCommitUnknown,
		kv.ErrClosed,
		syscall.ENOSPC,
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}

	const text = "batch: kv: the commit may or may not have happened\n" +
		"kv: the database is closed: ended"
	if err.Error() != text {
		t.Errorf("the text is %q, want %q", err, text)
	}

	detail := kv.Detail(err)
	for _, want := range []string{text, "/secret/1", "/secret/2", "/secret/3", "disk full"} {
		if n := strings.Count(detail, want); n != 1 {
			t.Errorf("%q is %d times in %q", want, n, detail)
		}
	}
	if plain := errors.New("plain"); kv.Detail(plain) != "plain" {
		t.Error(kv.Detail(plain))
	}
}
