// Package harness is what test binaries share: how much a test repeats, what becomes of a test that
// hangs, and child processes that end with the test.
package harness

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// Nightly asks for all engines, value formats and rounds, and for tests that measure. It is set by
// PQ_TEST_NIGHTLY=1. Without it a test checks the same thing once, on one engine.
var Nightly = os.Getenv("PQ_TEST_NIGHTLY") == "1"

// Clients asks for tests that run programs in other languages. It is set by PQ_TEST_CLIENTS=1.
// AllClients, set by PQ_TEST_CLIENTS=all, has them fail where a language is missing.
var (
	AllClients = os.Getenv("PQ_TEST_CLIENTS") == "all"
	Clients    = AllClients || os.Getenv("PQ_TEST_CLIENTS") == "1"
)

// Times returns how often a test repeats something: once times, or nightly times if Nightly.
func Times(once, nightly int) int {
	if Nightly {
		return nightly
	}
	return once
}

// OnlyNightly skips a test that measures or repeats rather than checks.
func OnlyNightly(t testing.TB) {
	t.Helper()
	if !Nightly {
		t.Skip("skipped: make nightly runs it (PQ_TEST_NIGHTLY=1)")
	}
}

// OnlyClients skips a test that needs other languages.
func OnlyClients(t testing.TB) {
	t.Helper()
	if !Clients {
		t.Skip("skipped: make test-clients runs it (PQ_TEST_CLIENTS=1)")
	}
}

// logLines is how many lines of a log a failed test shows.
const logLines = 30

// Logger returns a logger for what a test starts. If the test fails, it shows the last lines and
// names a file with all of them; with -v it writes them at once.
func Logger(t testing.TB, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(t.Output(), options))
	}

	log := &Transcript{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(Shorten("log", log.String()))
		}
	})

	return slog.New(slog.NewTextHandler(log, options))
}

// Shorten returns the last lines of a long text, and the name of a file that has all of it. A short
// text it returns as it is. What names the text in the file's name. Not for the errors of a check
// that is tried again and again: each would leave a file.
func Shorten(what, text string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= logLines {
		return text
	}
	return fmt.Sprintf("%s, the last of %d lines:\n%s", save(what, []byte(text)), len(lines),
		strings.Join(lines[len(lines)-logLines:], ""))
}

// save writes a file that stays after the test, and returns its name.
func save(what string, content []byte) string {
	f, err := os.CreateTemp("", "pq-test-"+what+"-*.txt")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err.Error()
	}

	return f.Name()
}

// RaceTimes returns how often a test repeats something: n times, or under times with the race
// detector.
func RaceTimes(n, under int) int {
	if Race {
		return under
	}
	return n
}
