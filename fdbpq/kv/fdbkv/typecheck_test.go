package fdbkv_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	module  = "github.com/pqbridge/pqbridge"
	binding = "github.com/apple/foundationdb/bindings/go/src/fdb"
)

// TestTaggedCodeTypeChecks keeps the code behind the tag fdb, tests included,
// in shape on machines without FoundationDB's headers: everything in the module
// that depends on the binding is type-checked, with the C code taken on trust.
func TestTaggedCodeTypeChecks(t *testing.T) {
	packages, err := listTagged("../../..")
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{fset: token.NewFileSet(), packages: packages}
	checked := make(map[string]bool)
	for _, p := range packages {
		if !p.inModule() || !slices.Contains(p.Deps, binding) {
			continue
		}
		checked[p.ImportPath] = true
		if _, err := c.check(p); err != nil {
			t.Errorf("%s with the tag fdb:\n%v", p.ImportPath, err)
		}
	}
	for _, want := range []string{module + "/fdbpq/kv/fdbkv", module + "/fdbpq/kv/fdbkv_test"} {
		if !checked[want] {
			t.Errorf("%s was not checked", want)
		}
	}
}

// listed is a package as go list prints it. With -test a package appears a
// second time as it is compiled for its tests, as "path [path.test]".
type listed struct {
	ImportPath, Dir, ForTest string
	GoFiles, CgoFiles, Deps  []string
	ImportMap                map[string]string
}

func (p *listed) inModule() bool {
	generated := strings.HasSuffix(p.ImportPath, ".test")
	return strings.HasPrefix(p.ImportPath, module) && !generated
}

// listTagged returns the packages of the module in dir, their tests, and all
// that they need, as they are with the tag fdb, by import path. Packages that
// go list finds fault with (-e) are for the compiler to report, or else they
// show up here as an import that is missing.
func listTagged(dir string) (map[string]*listed, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-test", "-tags", "fdb",
		"-json=ImportPath,Dir,ForTest,GoFiles,CgoFiles,Deps,ImportMap", "./...")
	cmd.Dir = dir
	// Without a C compiler go would leave out the binding's files.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	packages := make(map[string]*listed)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(listed)
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		// "path_test [path.test]" is only there once, so the plain name serves.
		if name, _, _ := strings.Cut(p.ImportPath, " "); strings.HasSuffix(name, "_test") {
			p.ImportPath = name
		}
		packages[p.ImportPath] = p
	}
}

// checker type-checks packages from source, each once.
type checker struct {
	fset     *token.FileSet
	packages map[string]*listed
	done     map[string]*types.Package
}

// check returns p. Errors of packages outside of the module are ignored: what
// is behind import "C" is not known, and others' code is not ours to check.
func (c *checker) check(p *listed) (*types.Package, error) {
	if done, ok := c.done[p.ImportPath]; ok {
		return done, nil
	}
	files, err := c.parse(p)
	if err != nil {
		return nil, err
	}
	var problems []error
	config := types.Config{
		FakeImportC:      true,
		IgnoreFuncBodies: !p.inModule(),
		Importer:         importer{c, p},
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		Error:            func(err error) { problems = append(problems, err) },
	}
	checked, _ := config.Check(p.ImportPath, c.fset, files, nil)
	if c.done == nil {
		c.done = make(map[string]*types.Package)
	}
	c.done[p.ImportPath] = checked
	if !p.inModule() {
		return checked, nil
	}
	return checked, errors.Join(problems...)
}

func (c *checker) parse(p *listed) ([]*ast.File, error) {
	var files []*ast.File
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// importer resolves the imports of one package.
type importer struct {
	*checker
	from *listed
}

func (i importer) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if mapped, ok := i.from.ImportMap[path]; ok {
		path = mapped
	}
	p, ok := i.packages[path]
	if !ok {
		return nil, fmt.Errorf("go list did not list %s", path)
	}
	checked, err := i.check(p)
	if checked != nil {
		err = nil // reported once, for the package itself
	}
	return checked, err
}
