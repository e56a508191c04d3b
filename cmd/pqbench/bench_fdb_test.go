//go:build fdb

package main

import (
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

const buildTags = "fdb"

// TestBenchOfFoundationDB measures with a private cluster and with an existing one, twice:
// it must clean up there.
func TestBenchOfFoundationDB(t *testing.T) {
	cluster := testenv.FDBClusterFile(t)
	t.Setenv(mainVariable, "1")
	dir := t.TempDir()
	all := strings.NewReplacer("push,", "push, naive push,", "pop.min,", "pop.min, naive pop,").Replace(operations) +
		", push, bridges: 1, pop.min, bridges: 1, push, bridges: 2, pop.min, bridges: 2"
	for _, file := range []string{"", cluster, cluster} {
		t.Setenv("FDB_CLUSTER_FILE", file)
		table, rows := measured(t, dir, "--store", "fdb", "--bridges", "1,2", "--rounds", "2",
			"--pqbridge", program(t, "pqbridge"), "--nats-server", program(t, "nats-server"))
		if got := names(rows); got != all {
			t.Fatalf("rows %s, want %s", got, all)
		}

		figures := map[string]float64{}
		for _, row := range rows {
			if row.Items == 0 || (row.FDB == nil) != (file != "") {
				t.Errorf("row %+v: want numbers, and fdbserver's processor time if it is ours", row)
			}
			for _, f := range row.Extra {
				figures[row.Name+" "+f.Name] = f.Value
			}
		}
		for _, name := range []string{
			"push of naive push", "pop.min of naive pop", "push, bridges: 2 of 1", "pop.min, bridges: 2 of 1",
		} {
			if figures[name] <= 0 {
				t.Errorf("%s is %v in\n%s", name, figures[name], table)
			}
		}
		if wasted, known := figures["pop.min, bridges: 2 wasted"]; !known || wasted < 0 || wasted >= 100 {
			t.Errorf("%v %% wasted", wasted)
		}
	}
}
