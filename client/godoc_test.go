package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// The documentation shows the fields of types whose definitions are in other packages.
func TestDocOfFields(t *testing.T) {
	docs := map[string]string{} // the comments and definitions of types
	for _, path := range must(filepath.Glob("*.go")) {
		text, files := must(os.ReadFile(path)), token.NewFileSet()
		for _, d := range must(parser.ParseFile(files, path, text, parser.ParseComments)).Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE && d.Doc != nil {
				text := text[files.Position(d.Doc.Pos()).Offset:files.Position(d.End()).Offset]
				docs[d.Specs[0].(*ast.TypeSpec).Name.Name] = string(text)
			}
		}
	}
	for _, value := range []any{
		client.Item{}, client.Delivery{}, client.DeadLetter{}, client.Settings{}, client.QueueInfo{},
		client.PriorityCount{}, client.QueueConsumer{}, client.StoredItem{}, client.ItemsOptions{},
		client.ItemsPage{}, client.ItemResult{},
	} {
		of := reflect.TypeOf(value)
		for _, field := range reflect.VisibleFields(of) {
			if field.Anonymous || !field.IsExported() || of.Name() == "Delivery" && len(field.Index) > 1 && field.Index[0] == 0 {
				continue // of a Delivery, those of Item are elsewhere
			}
			if doc := docs[of.Name()]; !regexp.MustCompile(`(?m)^(//)?\s+` + field.Name + `\s+\S`).MatchString(doc) {
				t.Errorf("the documentation of client.%s lacks the field %s:\n%s", of.Name(), field.Name, doc)
			}
		}
	}
}
