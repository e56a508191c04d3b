package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// make test says what it leaves out, and fails if the tests do. A stand-in for go fails at them.
func TestMakeNamesWhatItSkipsAfterAFailure(t *testing.T) {
	makes, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed here")
	}
	folder := t.TempDir()
	const fails = "#!/bin/sh\nif [ \"$1\" = env ]; then echo 0; else echo \"go $*\"; exit 1; fi\n"
	must(t, os.WriteFile(filepath.Join(folder, "go"), []byte(fails), 0o700))
	cmd := exec.Command(makes, "-C", root, "test")
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()

	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("make test: %v, want it to fail", err)
	}
	wantWords(t, string(out), "\ngo test -timeout", "\nskipped: tests on FoundationDB", "testenv/dashboard")
}
