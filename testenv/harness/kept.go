package harness

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Kept compares lines with those of a file, which users rely on, in order. PQ_TEST_UPDATE=1 writes
// the file.
func Kept(t testing.TB, file string, lines []string) {
	t.Helper()
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if os.Getenv("PQ_TEST_UPDATE") == "1" {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range kept {
		if !slices.Contains(lines, line) {
			t.Errorf("%s, which users rely on, is gone: see Versions in docs/protocol.md", line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(kept, line) {
			t.Errorf("%s is new: PQ_TEST_UPDATE=1 adds it to %s", line, file)
		}
	}
}
