package fdbkv_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

const (
	module  = "github.com/pqbridge/pqbridge"
	binding = "github.com/apple/foundationdb/bindings/go/src/fdb"
)

// The code behind the tag fdb, tests included, type-checks on machines without FoundationDB's
// headers, with the C code taken on trust. That compiles everything it depends on once more, so
// only make vet asks for it.
func TestTaggedCodeTypeChecks(t *testing.T) {
	if os.Getenv("PQ_TEST_VET") != "1" {
		t.Skip("skipped: make vet runs it (PQ_TEST_VET=1)")
	}

	const root = "../../.."
	packages, err := listTagged(root)
	if err != nil {
		t.Fatal(err)
	}

	c := &checker{fset: token.NewFileSet(), packages: packages, done: make(map[string]result)}
	if c.compiled, err = compiled(root, c.fset, packages); err != nil {
		t.Fatal(err)
	}

	checked := make(map[string]bool)
	for _, p := range packages {
		if !p.inModule() || !p.needsBinding() {
			continue
		}

		checked[p.ImportPath] = true
		if err := c.check(p).err; err != nil {
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
	Export                   string // the file of the compiled package
}

func (p *listed) inModule() bool {
	generated := strings.HasSuffix(p.ImportPath, ".test")
	return strings.HasPrefix(p.ImportPath, module) && !generated
}

func (p *listed) needsBinding() bool {
	return p.ImportPath == binding || slices.Contains(p.Deps, binding)
}

// listTagged returns the packages of the module in dir, their tests, and all
// that they need, as they are with the tag fdb, by import path.
func listTagged(dir string) (map[string]*listed, error) {
	// Without a C compiler go would leave out the binding's files.
	return list(dir, []string{"CGO_ENABLED=1"}, "-deps", "-test", "-tags", "fdb",
		"-json=ImportPath,Dir,ForTest,GoFiles,CgoFiles,Deps,ImportMap", "./...")
}

// compiled returns an importer of those packages that go can compile without
// the headers, which is faster than to check them from source.
func compiled(
	dir string, fset *token.FileSet, packages map[string]*listed,
) (types.Importer, error) {
	args := []string{"-export", "-json=ImportPath,Export"}
	for path, p := range packages {
		if !p.needsBinding() && p.ForTest == "" && !strings.HasSuffix(path, ".test") {
			args = append(args, path)
		}
	}

	exported, err := list(dir, nil, args...)
	if err != nil {
		return nil, err
	}

	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if p := exported[path]; p != nil && p.Export != "" {
			return os.Open(p.Export)
		}
		return nil, fmt.Errorf("%s does not compile", path)
	}), nil
}

// list runs go list in dir. Packages it finds fault with (-e) are for the
// compiler to report, or else show up here as an import that is missing.
func list(dir string, env []string, args ...string) (map[string]*listed, error) {
	cmd := harness.Command("go", append([]string{"list", "-e"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}

	packages := make(map[string]*listed)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
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
	compiled types.Importer
	done     map[string]result
}

type result struct {
	*types.Package
	err error
}

// check returns p. Errors of packages outside of the module are ignored: nothing is known behind
// import "C", and others' code is not ours to check.
func (c *checker) check(p *listed) result {
	if done, ok := c.done[p.ImportPath]; ok {
		return done
	}

	var files []*ast.File
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return result{err: err}
		}

		files = append(files, file)
	}

	var problems []error
	config := types.Config{
		FakeImportC:      true,
		IgnoreFuncBodies: !p.inModule(),
		Importer:         imports{c, p},
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		Error:            func(err error) { problems = append(problems, err) },
	}

	checked, _ := config.Check(p.ImportPath, c.fset, files, nil)
	r := result{Package: checked}

	if p.inModule() {
		r.err = errors.Join(problems...)
	}

	c.done[p.ImportPath] = r
	return r
}

// imports resolves the imports of one package.
type imports struct {
	*checker
	of *listed
}

func (i imports) Import(path string) (*types.Package, error) {
	if mapped, ok := i.of.ImportMap[path]; ok {
		path = mapped
	}

	p, ok := i.packages[path]
	if !ok || !p.needsBinding() && p.ForTest == "" {
		return i.compiled.Import(path)
	}

	r := i.check(p)
	if r.Package == nil {
		return nil, r.err
	}

	return r.Package, nil // its error is reported for the package itself
}
