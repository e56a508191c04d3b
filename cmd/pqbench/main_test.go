package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/command"
	"github.com/pqbridge/pqbridge/testenv"
)

// mainVariable makes the test binary act as pqbench, which the benchmark starts as its
// echo service.
const mainVariable = "TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	harness.Main(m, append(testenv.FDBGoroutines(), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(programsDir)
		os.Exit(code)
	}))...)
}

// measure runs a short benchmark and returns its output and exit code.
func measure(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	args = append([]string{"--seconds", "0.05", "--groups", "0", "--memory", "0", "--clients", "8", "--connections", "2", "--priorities", "3"}, args...)
	code = run(context.Background(), args, &out, &problems)
	return out.String(), problems.String(), code
}

// ok returns the output of a benchmark that must succeed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := measure(t, args...)
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("pqbench %s: exit code %d, %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// fails checks that a benchmark fails with that exit code and those words.
func fails(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	stdout, stderr, got := measure(t, args...)
	if got != code || !strings.Contains(stderr, words) || stdout != "" {
		t.Errorf("pqbench %s: exit code %d and %q, want %d and words %q (standard output %q)",
			strings.Join(args, " "), got, stderr, code, words, stdout)
	}
}
