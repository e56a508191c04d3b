//go:build !fdb

package fdbkv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The stub must fit wherever the engine does.
var _ kv.Database = (*fdbkv.DB)(nil)

// A program without the tag learns from Open how to build with it.
func TestOpenWithoutTheTag(t *testing.T) {
	_, err := fdbkv.Open(fdbkv.Options{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "-tags fdb") {
		t.Errorf("Open returned %v, want an error that says how to get the engine", err)
	}
}

// Without the tag, a program that calls what needs the binding does not compile, and
// the error says how to build it.
func TestCompilerNamesTheTag(t *testing.T) {
	const program = `package main

import "github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"

func main() {
	fdbkv.Wrap(1)
	fdbkv.WrapRead(1)
	fdbkv.New(1, 0)
}`

	file := filepath.Join(t.TempDir(), "main.go")
	must(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := harness.Command("go", "build", "-o", os.DevNull, file).CombinedOutput()
	if err == nil || strings.Count(string(out), "go build -tags fdb") != 3 {
		t.Errorf("the compiler says: %s (%v)", out, err)
	}
}
