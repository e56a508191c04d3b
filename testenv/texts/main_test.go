package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Texts are found in every kind of file: joined where they are added to each other, and without
// what has no words.
func TestTexts(t *testing.T) {
	for name, want := range map[string][]text{
		"x.go":      {{4, "the queue … is full: push again later"}, {6, "go on"}},
		"x.html":    {{1, "the oldest job"}, {3, "Find a job"}},
		"x.py":      {{1, "want a text, or bytes"}},
		"x_test.go": nil,
		"x.txt":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			err := os.WriteFile(path, []byte(files[name]), 0o600)
			if err != nil {
				t.Fatal(err)
			}

			texts, err := textsOf(path)
			if err != nil || !reflect.DeepEqual(texts, want) {
				t.Errorf("%+v, %v; want %+v", texts, err, want)
			}
		})
	}
}

var files = map[string]string{
	"x.go": `package x
import "the path/of a package"
type t struct{ a int ` + "`json:\"no text\"`" + ` }
var e = "the queue " + name + " is full: " +
	"push again later"
var f, g = "go on", "pq.jobs"
`,
	"x.html":    "<p id=a>the\n oldest job</p>\n<input title=\"Find a job\">",
	"x.py":      "raise BadArgumentError(\"want a text, or bytes\", \"utf8\")",
	"x_test.go": `package x; var e = "the queue is full"`,
	"x.txt":     "the queue is full",
}
