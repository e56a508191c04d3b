//go:build fdb

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/testenv"
)

const buildTags = "fdb"

// TestBenchOfFoundationDB measures with a private cluster and with an existing one, twice:
// it must clean up there.
func TestBenchOfFoundationDB(t *testing.T) {
	cluster := testenv.FDBClusterFile(t)
	t.Setenv(mainVariable, "1")
	dir := t.TempDir()
	for _, file := range []string{"", cluster, cluster} {
		t.Setenv("FDB_CLUSTER_FILE", file)
		report := benchFDB(t, dir)
		for _, row := range report.Operations {
			if row.Count == 0 || (row.FDBCPU == nil) != (file != "") {
				t.Errorf("row %+v: want numbers, and fdbserver's processor time if it is ours", row)
			}
		}
		if got, want := names(report.Operations), strings.NewReplacer("push,", "push, naive push,", "pop.min,", "pop.min, naive pop,").Replace(operations); got != want {
			t.Errorf("operations %s, want %s", got, want)
		}
		if n := report.Naive; n == nil || n.Push <= 0 || n.Pop <= 0 {
			t.Errorf("compared with the naive recipe: %+v, want numbers", n)
		}
		if len(report.Bridges) != 2 {
			t.Fatalf("%d rows of bridges, want 2", len(report.Bridges))
		}
		for i, row := range report.Bridges {
			if row.Bridges != i+1 || row.PushRatio <= 0 || row.PopRatio <= 0 || row.Wasted < 0 || row.Wasted >= 1 {
				t.Errorf("bridges %+v: want numbers", row)
			}
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "pq-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders %v are left (%v)", left, err)
	}
}

func benchFDB(t *testing.T, dir string) *bench.Report {
	t.Helper()
	file := filepath.Join(dir, "result.json")
	table := ok(t, "--dir", dir, "--json", file, "--store", "fdb", "--bridges", "1,2", "--rounds", "2",
		"--pqbridge", program(t, "pqbridge"), "--nats-server", program(t, "nats-server"))
	for _, want := range []string{"of naive", "wasted"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in the table:\n%s", want, table)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	report := &bench.Report{}
	if err := json.Unmarshal(text, report); err != nil {
		t.Fatal(err)
	}
	return report
}
