package fdbkv_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPageShowsTheExample: all Go code of docs/foundationdb.md is, word for word, in
// the program in docs/example/foundationdb, which is compiled and run by its own test.
func TestPageShowsTheExample(t *testing.T) {
	const docs = "../../../docs"
	page, err := os.ReadFile(filepath.Join(docs, "foundationdb.md"))
	must(t, err)
	program, err := os.ReadFile(filepath.Join(docs, "example/foundationdb/main.go"))
	must(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Error("the page has no Go code: does the test still see it?")
	}
	for _, block := range blocks {
		if !strings.Contains(string(program), "\n"+block[1]) {
			t.Errorf("this is not in the program:\n%s", block[1])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
