package testenv_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goFile     = regexp.MustCompile("`([a-z/_]+/)?([a-z_]+\\.go)`")
	wayHeading = regexp.MustCompile(`(?m)^### (.+)$`)
	// stop is a stop of a way, or what should be one: its number, file and function.
	stop = regexp.MustCompile("(?m)^\\d+\\. (?:`([a-z/_]+\\.go)` `([A-Za-z]+)`)?")
)

// The ways through the code of docs/architecture.md have at most 14 stops each, and the file of
// each stop declares its function.
func TestWaysThroughTheCode(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ways, _ := strings.Cut(string(page), "\n## Three ways through the code\n")
	ways, _, _ = strings.Cut(ways, "\n## ")

	names := wayHeading.FindAllStringSubmatch(ways, -1)
	if len(names) != 3 {
		t.Fatalf("%d ways: want 3", len(names))
	}
	for n, way := range wayHeading.Split(ways, -1)[1:] {
		t.Run(names[n][1], func(t *testing.T) {
			stops := stop.FindAllStringSubmatch(way, -1)
			if len(stops) == 0 || len(stops) > 14 {
				t.Errorf("%d stops: want 1 to 14", len(stops))
			}
			for _, s := range stops {
				if file, function := s[1], s[2]; !declares(t, file, function) {
					t.Errorf("%q: %s declares no function %s", s[0], file, function)
				}
			}
		})
	}
}

// The lists of what to change in docs/architecture.md name files that exist. A name without a
// folder is in the folder of the file before it.
func TestWhereToChangeWhat(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lists, _ := strings.Cut(string(page), "\n**Where to change what**\n")
	lists, _, _ = strings.Cut(lists, "\n## ")

	named := goFile.FindAllStringSubmatch(lists, -1)
	if len(named) == 0 {
		t.Fatal("the lists name no files")
	}
	folder := ""
	for _, name := range named {
		folder = cmp.Or(name[1], folder)
		if _, err := os.Stat(filepath.Join("..", folder, name[2])); err != nil {
			t.Error(err)
		}
	}
}

// declares reports whether a file of the module has a function or method.
func declares(t *testing.T, file, function string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, 0)
	if err != nil {
		t.Error(err)
		return false
	}
	for _, d := range parsed.Decls {
		if f, is := d.(*ast.FuncDecl); is && f.Name.Name == function {
			return true
		}
	}
	return false
}
