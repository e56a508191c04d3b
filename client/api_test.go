package client_test

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The package exports what testdata/api.txt says, and the types that it has from other packages
// have the fields and methods there.
func TestAPI(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[name] = file
	}

	lookup := func(name string) (io.ReadCloser, error) { return os.Open(files[name]) }
	p, err := importer.ForCompiler(token.NewFileSet(), "gc", lookup).
		Import("github.com/pqbridge/pqbridge/client")
	if err != nil {
		t.Fatal(err)
	}

	var lines []string
	short := func(p *types.Package) string { return path.Base(p.Path()) }
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		if c, is := o.(*types.Const); is {
			lines = append(lines, "const "+name+" = "+c.Val().ExactString())
			continue
		}
		is, isType := o.(*types.TypeName)
		if !isType {
			lines = append(lines, types.ObjectString(o, short))
			continue
		}

		lines = append(lines, "type "+name)
		switch under := is.Type().Underlying().(type) {
		case *types.Struct:
			for field := range under.Fields() {
				if field.Exported() {
					of := types.TypeString(field.Type(), short)
					lines = append(lines, "type "+name+": "+field.Name()+" "+of)
				}
			}
		default:
			lines = append(lines, "type "+name+": "+types.TypeString(under, short))
		}
		for method := range types.NewMethodSet(types.NewPointer(is.Type())).Methods() {
			if method.Obj().Exported() {
				lines = append(lines, types.ObjectString(method.Obj(), short))
			}
		}
	}
	harness.Kept(t, "testdata/api.txt", lines)
}
