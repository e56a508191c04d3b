//go:build fdb

package main

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"

	"github.com/pqbridge/pqbridge/testenv"
)

// Run again, the program goes on with what the first run left: orders are placed once, and Ada
// still has her job.
func TestRun(t *testing.T) {
	file := testenv.FDBClusterFile(t)
	fdb.MustAPIVersion(730)
	db, err := fdb.OpenDatabase(file)
	if err != nil {
		t.Fatal(err)
	}

	path := []string{"pqtest-" + rand.Text()}
	t.Cleanup(func() {
		if _, err := directory.Root().Remove(db, path); err != nil {
			t.Errorf("removing the test's directory: %v", err)
		}
	})

	for _, want := range []string{
		"Ada packs an umbrella, 2 jobs are waiting\nthe next one had priority -1\n",
		"Ada packs an umbrella, 1 jobs are waiting\nthe next one had priority 0\n",
	} {
		var out strings.Builder
		if err := run(db, path, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("it printed %q, want %q", &out, want)
		}
	}
}
