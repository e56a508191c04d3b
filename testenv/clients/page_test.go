package clients_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/clients.md has a cell for each language in each row, what the cells name is in the sources
// of that client, and each scenario holds a row.
func TestPage(t *testing.T) {
	t.Parallel()
	named := map[string]bool{} // scenarios
	for _, topic := range table {
		for _, c := range topic {
			named[c.name] = false
		}
	}

	page := string(must(os.ReadFile("../../docs/clients.md")))
	sources := []string{
		sourcesOf(t, clients+"/*.go") + sourcesOf(t, clients+"/pqotel/*.go"),
		sourcesOf(t, clients+"/javascript/src/*.ts"),
		sourcesOf(t, clients+"/python/src/pqbridge/*.py"),
		sourcesOf(t, clients+"/java/client/src/main/java/io/github/pqbridge/*.java"),
	}
	code := regexp.MustCompile("`([^`]+)`")

	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		isRow := strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|-")
		if !isRow || strings.TrimSpace(cells[0]) == "" { // the heading
			continue
		}
		if len(cells) != 6 {
			t.Errorf("%d cells: want 6: %s", len(cells), line)
			continue
		}
		heldBy := cells[5]

		for i, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("cell %d is empty: %s", i+1, line)
			}
		}
		for i, source := range sources {
			for _, name := range code.FindAllStringSubmatch(cells[i+1], -1) {
				if !strings.Contains(name[1], ".") && !strings.Contains(name[1], " ") &&
					!regexp.MustCompile(`\b`+regexp.QuoteMeta(name[1])+`\b`).MatchString(source) {
					t.Errorf("the client in cell %d has no %s: %s", i+2, name[1], line)
				}
			}
		}

		for _, scenario := range code.FindAllStringSubmatch(heldBy, -1) {
			if _, known := named[scenario[1]]; !known {
				t.Errorf("no scenario %q: %s", scenario[1], line)
			}
			named[scenario[1]] = true
		}
		if !strings.Contains(heldBy, "`") && strings.TrimSpace(heldBy) != "own tests" {
			t.Errorf("held by %q: want scenarios, or own tests: %s", heldBy, line)
		}
	}

	for name, found := range named {
		if !found {
			t.Errorf("docs/clients.md has no row that the scenario %q holds", name)
		}
	}
}

// sourcesOf returns the text of all files that match, without those of tests.
func sourcesOf(t *testing.T, pattern string) string {
	t.Helper()
	files := slices.DeleteFunc(must(filepath.Glob(pattern)), func(name string) bool {
		return strings.HasSuffix(name, "_test.go")
	})
	if len(files) == 0 {
		t.Fatalf("no files match %s", pattern)
	}

	var all strings.Builder
	for _, name := range files {
		all.Write(must(os.ReadFile(name)))
	}
	return all.String()
}
