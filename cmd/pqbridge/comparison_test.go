package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// markdownLinks matches [text](target), [text](target "title") and [text][name].
var markdownLinks = regexp.MustCompile(`\[([^\]]*)\](?:\(([^) ]+)(?: "([^"]*)")?\)|\[([^\]]+)\])`)

// What docs/comparison.md says of pqbridge links to a test that exists, and each statement about
// another system to a document of its own.
func TestComparisonHasProof(t *testing.T) {
	text := readFile(t, "docs", "comparison.md")
	targets := map[string]string{}

	for _, m := range linkTargets.FindAllStringSubmatch(text, -1) {
		targets[m[1]] = m[2]
	}

	rows := 0
	for line := range strings.Lines(text) {
		cells, ok := strings.CutPrefix(strings.TrimSpace(line), "| ")
		if !ok || strings.HasPrefix(cells, "|") { // no row, or a head
			continue
		}

		rows++
		row := strings.Split(strings.TrimSuffix(cells, " |"), " | ")
		if markdownLinks.FindString(row[1]) == "" && !strings.HasPrefix(row[1], "no") {
			t.Errorf("%s: %q has no link", row[0], row[1])
		}

		for _, link := range markdownLinks.FindAllStringSubmatch(row[1], -1) {
			checkProof(t, row[0], link[2], link[3])
		}

		for _, cell := range row[2:] {
			found := markdownLinks.FindAllStringSubmatch(cell, -1)
			if strings.TrimSpace(cell) != "" && found == nil {
				t.Errorf("%s: %q has no link", row[0], cell)
			}

			for _, link := range found {
				if !strings.HasPrefix(targets[link[4]], "https://") {
					t.Errorf("%s: %q does not link to a document", row[0], cell)
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("the tables have %d rows only: does the test still see them?", rows)
	}
}

// checkProof checks that a file has the test of that name if it holds tests.
func checkProof(t *testing.T, row, path, test string) {
	t.Helper()
	path, _, _ = strings.Cut(path, "#")
	file := filepath.Join(root, "docs", filepath.FromSlash(path))

	if test == "" && !strings.HasSuffix(file, ".go") {
		return // TestDocumentsLinkToRealFiles checks it
	}

	source, err := os.ReadFile(file)
	head := "\nfunc " + test + "(t *testing.T)"
	if err != nil {
		t.Errorf("%s: %v", row, err)
	} else if !strings.HasPrefix(test, "Test") || !strings.Contains(string(source), head) {
		t.Errorf("%s: %s has no test %q", row, path, test)
	}
}
