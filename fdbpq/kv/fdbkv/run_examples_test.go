//go:build fdb

package fdbkv_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"

	"github.com/pqbridge/pqbridge/testenv"
)

// The examples run. An example with an output comment would fail, not be skipped, where there is no
// FoundationDB.
func TestExamples(t *testing.T) {
	clusterFile := testenv.FDBClusterFile(t)
	open(t, clusterFile).Close() // chooses the API version
	t.Setenv("FDB_CLUSTER_FILE", clusterFile)
	path = []string{"pqtest-" + rand.Text()}

	t.Cleanup(func() {
		if _, err := directory.Root().Remove(fdb.MustOpenDefault(), path); err != nil {
			t.Errorf("removing the examples' directory: %v", err)
		}
	})

	for _, example := range []struct {
		run  func()
		want string
	}{
		{ExampleWrap, "pack order 4711\n"},
		{ExampleWrapRead, "0\n"},
		{ExampleNew, "pack order 4712\n"},
	} {
		if got := printed(t, example.run); got != example.want {
			t.Errorf("printed %q, want %q", got, example.want)
		}
	}
}

// printed is what f prints.
func printed(t *testing.T, f func()) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	must(t, err)
	defer out.Close()
	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = out
	f()
	text, err := os.ReadFile(out.Name())
	must(t, err)

	return string(text)
}
