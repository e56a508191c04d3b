package harness

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Checkout returns a new folder with the files of a revision of the repository in root.
func Checkout(t testing.TB, root, revision string) string {
	t.Helper()
	folder := t.TempDir()
	archive := filepath.Join(t.TempDir(), "source.tar")
	Do(t, root, "git", "archive", "--output", archive, revision)
	Do(t, folder, "tar", "-xf", archive)
	return folder
}

// Do runs a program in a folder, and ends the test if that fails.
func Do(t testing.TB, folder, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}
