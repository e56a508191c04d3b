package fdbpq_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// go doc shows neither fields nor methods of a type in an internal package, so the comment of its
// public name has to mention all.
func TestNamesDocumentFieldsAndMethods(t *testing.T) {
	types := map[string]reflect.Type{
		"Item": reflect.TypeFor[fdbpq.Item](), "Message": reflect.TypeFor[fdbpq.Message](),
		"ID": reflect.TypeFor[fdbpq.ID](), "Token": reflect.TypeFor[fdbpq.Token](),
		"DeadLetter": reflect.TypeFor[fdbpq.DeadLetter](), "ItemState": reflect.TypeFor[fdbpq.ItemState](),
		"End": reflect.TypeFor[fdbpq.End](), "Subspace": reflect.TypeFor[fdbpq.Subspace](),
		"ValueFormat": reflect.TypeFor[fdbpq.ValueFormat](), "QueueName": reflect.TypeFor[fdbpq.QueueName](),
		"Mark": reflect.TypeFor[fdbpq.Mark](), "Removed": reflect.TypeFor[fdbpq.Removed](),
		"Ahead": reflect.TypeFor[fdbpq.Ahead](), "QueueAhead": reflect.TypeFor[fdbpq.QueueAhead](),
		"Setting": reflect.TypeFor[fdbpq.Setting](), "Mismatch": reflect.TypeFor[fdbpq.Mismatch](),
		"MismatchError": reflect.TypeFor[fdbpq.MismatchError](),
	}
	file := must(parser.ParseFile(token.NewFileSet(), "names.go", nil, parser.ParseComments))
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.TYPE {
			continue
		}
		for _, spec := range group.Specs {
			spec := spec.(*ast.TypeSpec)
			name := spec.Name.Name
			of := types[name]
			delete(types, name)
			if of == nil {
				if name != "Settings" { // its package is public
					t.Errorf("%s is missing in this test", name)
				}
				continue
			}
			for _, member := range membersOf(of) {
				if !regexp.MustCompile(`\b` + member + `\b`).MatchString(spec.Doc.Text()) {
					t.Errorf("the comment of %s does not mention %s", name, member)
				}
			}
		}
	}
	if len(types) > 0 {
		t.Errorf("not in names.go: %v", types)
	}
}

// membersOf returns the names of the exported fields and methods of a type, but for those that an
// embedded one has.
func membersOf(of reflect.Type) (names []string) {
	embedded := map[string]bool{}
	if of.Kind() == reflect.Struct {
		for i := range of.NumField() {
			f := of.Field(i)
			if f.IsExported() {
				names = append(names, f.Name)
			}
			if f.Anonymous {
				for method := range reflect.PointerTo(f.Type).Methods() {
					embedded[method.Name] = true
				}
			}
		}
	}
	if of.Kind() != reflect.Interface {
		of = reflect.PointerTo(of)
	}
	for method := range of.Methods() {
		if !embedded[method.Name] {
			names = append(names, method.Name)
		}
	}
	return names
}
