//go:build !fdb

package fdbkv_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// The stub must fit wherever the engine does.
var _ kv.Database = (*fdbkv.DB)(nil)

func TestOpenWithoutTheTag(t *testing.T) {
	_, err := fdbkv.Open(fdbkv.Options{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "-tags fdb") {
		t.Errorf("Open returned %v, want an error that says how to get the engine", err)
	}
}

// Without the tag, a program that calls what needs the binding does not compile, and
// the error says how to build it.
func TestCompilerNamesTheTag(t *testing.T) {
	for _, call := range []string{"fdbkv.Wrap(tr)", "fdbkv.WrapRead(tr)", "fdbkv.New(tr, fdbkv.Options{})"} {
		t.Run(call, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "main.go")
			program := "package main\n\nimport \"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv\"\n\nvar tr any\n\nfunc main() { " + call + " }\n"
			must(t, os.WriteFile(file, []byte(program), 0o600))
			out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "go build -tags fdb") {
				t.Errorf("the compiler says: %s (%v)", out, err)
			}
		})
	}
}
