package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestDocumentsListTheConfiguration compares the table in docs/configuration.md with the
// variables, row by row.
func TestDocumentsListTheConfiguration(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, v := range variables() {
		byDefault := v.byDefault
		if byDefault != "" {
			byDefault = "`" + byDefault + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", v.name, byDefault, v.description))
	}
	rows := regexp.MustCompile("(?m)^\\| `PQ_.*$").FindAllString(string(text), -1)
	if !slices.Equal(rows, want) {
		t.Errorf("the table in docs/configuration.md should be:\n%s", strings.Join(want, "\n"))
	}
}

// TestDocumentsNameRealFiles checks every Go file that a document mentions; names may be patterns.
func TestDocumentsNameRealFiles(t *testing.T) {
	var files, documents []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch filepath.Ext(path) {
		case ".go":
			files = append(files, filepath.ToSlash(path))
		case ".md":
			documents = append(documents, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`([a-z0-9_*/]+\\.go)`").FindAllStringSubmatch(string(text), -1) {
			named++
			end := regexp.MustCompile("/" + strings.ReplaceAll(regexp.QuoteMeta(m[1]), `\*`, "[a-z_]*") + "$")
			if !slices.ContainsFunc(files, end.MatchString) {
				t.Errorf("%s: there is no file %s", document, m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("the documents name %d files only: does the test still see them?", named)
	}
}

// TestDocumentsNameRealVariables checks every variable that a document mentions.
func TestDocumentsNameRealVariables(t *testing.T) {
	known := []string{
		"PQ_TEST_FDB",                       // read by package testenv
		"PQ_TEST_NPM",                       // read by the tests of the examples
		"PQ_SERVICE_HOST", "PQ_PORT_80_TCP", // set by Kubernetes
		// set by pq work
		"PQ_QUEUE", "PQ_ID", "PQ_PRIORITY", "PQ_DELIVERIES", "PQ_PUSHED_AT", "PQ_HEADER_", "PQ_HEADER_TRACE_ID",
		"PQ_DEAD_QUEUE", "PQ_DEAD_REASON", "PQ_DEAD_ERROR", "PQ_DEAD_DELIVERIES", "PQ_DEAD_AT",
	}
	for _, v := range variables() {
		known = append(known, v.name)
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`\bPQ_[A-Z0-9_]+`).FindAllString(string(text), -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no variable %s", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
