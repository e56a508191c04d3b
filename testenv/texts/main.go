// Lists what users read of the programs: help, errors, logs, metrics, pages. One text in a line,
// after the file and line that has it, for somebody who reads them all.
//
//	go run ./testenv/texts [directory]
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rooms have what users see; tests and examples have nothing of it.
var rooms = []string{"bridge", "client", "cmd", "fdbpq", "subjects"}

func main() {
	log.SetFlags(0)
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}

	for _, room := range rooms {
		if err := filepath.WalkDir(filepath.Join(root, room), list); err != nil {
			log.Fatal(err)
		}
	}
}

func list(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if entry.IsDir() {
		skipped := []string{"node_modules", "dist", "test", "tests", "testdata", "driver"}
		if slices.Contains(skipped, entry.Name()) {
			return fs.SkipDir
		}
		return nil
	}

	texts, err := textsOf(path)
	for _, t := range texts {
		fmt.Printf("%s:%d: %s\n", filepath.ToSlash(path), t.line, t.text)
	}
	return err
}

// text is what a program says, and the line of its file that has it.
type text struct {
	line int
	text string
}

func textsOf(path string) ([]text, error) {
	switch filepath.Ext(path) {
	case ".go":
		if strings.HasSuffix(path, "_test.go") {
			return nil, nil
		}
		return ofGo(path)
	case ".html":
		return ofPattern(path, inPages)
	case ".js", ".ts", ".py":
		return ofPattern(path, inScripts)
	}
	return nil, nil
}

var (
	inPages   = regexp.MustCompile(`>([^<>]*)<|(?:title|placeholder|aria-label)="([^"]*)"`)
	inScripts = regexp.MustCompile("\"((?:[^\"\\\\\n]|\\\\.)*)\"|`([^`]*)`")
)

// ofGo returns the texts of a Go file: its literals, those that are added to each other as one.
func ofGo(path string) (texts []text, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	var tag *ast.BasicLit // of the latest field of a struct
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tag = n.Tag
		case *ast.BinaryExpr:
			if s, ok := joined(n); ok {
				texts = add(texts, files.Position(n.Pos()).Line, s)
				return false
			}
		case *ast.BasicLit:
			if s, ok := joined(n); ok && n != tag {
				texts = add(texts, files.Position(n.Pos()).Line, s)
			}
		}
		return true
	})
	return texts, nil
}

// joined returns literals that are added to each other, with an ellipsis for what is not one.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.ParenExpr:
		return joined(e.X)
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}

		x, isText := joined(e.X)
		y, isTextToo := joined(e.Y)
		if !isText && !isTextToo {
			return "", false
		}
		return cmp.Or(x, "…") + cmp.Or(y, "…"), true
	}
	return "", false
}

// ofPattern returns what the groups of a pattern match.
func ofPattern(path string, pattern *regexp.Regexp) (texts []text, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	for _, at := range pattern.FindAllSubmatchIndex(data, -1) {
		for group := 2; group < len(at); group += 2 {
			if at[group] >= 0 {
				line := 1 + strings.Count(string(data[:at[group]]), "\n")
				texts = add(texts, line, string(data[at[group]:at[group+1]]))
			}
		}
	}
	return texts, nil
}

var (
	space = regexp.MustCompile(`\s+`)
	words = regexp.MustCompile(`[A-Za-z]{2,}[,:;.'’-]* ([a-z%{“"(]|[A-Z][a-z])`)
)

// add adds what has words.
func add(texts []text, line int, s string) []text {
	s = strings.TrimSpace(space.ReplaceAllString(s, " "))
	if !words.MatchString(s) {
		return texts
	}
	return append(texts, text{line, s})
}
