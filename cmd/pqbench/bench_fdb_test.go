//go:build fdb

package main

import (
	"strings"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"

	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv"
)

func init() { tags, leaks = "fdb", testenv.FDBGoroutines() }

// TestBenchOfFoundationDB measures with a private cluster and with an existing one, twice:
// it must clean up there.
func TestBenchOfFoundationDB(t *testing.T) {
	cluster := testenv.FDBClusterFile(t)
	all := strings.NewReplacer("push,", "push, naive push,", "pop.min Pq-Group,", "pop.min Pq-Group, naive pop,").Replace(operations) +
		", push, bridges: 1, pop.min, bridges: 1, push, bridges: 2, pop.min, bridges: 2"
	for _, n := range []string{"1", "2"} {
		all += ", push Pq-Group, bridges: " + n + ", pop.min beside push, bridges: " + n + ", pop.min beside push Pq-Group, bridges: " + n
	}
	for _, file := range []string{"", cluster, cluster} {
		t.Setenv("FDB_CLUSTER_FILE", file)
		table, rows := measured(t, "--store", "fdb", "--bridges", "1,2", "--rounds", "2", "--seconds", "0.2") // time for a commit
		wantRows(t, rows, all)

		figures := map[string]float64{}
		for _, row := range rows {
			if row.Items == 0 || (row.FDB == nil) != (file != "") {
				t.Errorf("row %+v: want numbers, and fdbserver's processor time if it is ours", row)
			}
			for _, f := range row.Extra {
				figures[row.Name+" "+f.Name] = f.Value
			}
		}
		const beside = "pop.min beside push Pq-Group, bridges: 2 "
		for _, name := range []string{
			"push of naive push", "pop.min of naive pop", "push, bridges: 2 of 1", "pop.min, bridges: 2 of 1",
			beside + "pushes", beside + "items in a transaction",
		} {
			if figures[name] <= 0 {
				t.Errorf("%s is %v in\n%s", name, figures[name], table)
			}
		}
		wasted, known := figures["pop.min, bridges: 2 wasted"]
		if _, counted := figures[beside+"conflicts for each"]; !known || !counted || wasted < 0 || wasted >= 100 {
			t.Errorf("%v %% wasted, and conflicts are known: %t", wasted, counted)
		}
		if file == "" {
			continue
		}
		fdb.MustAPIVersion(fdbkv.DefaultAPIVersion)
		db, err := fdb.OpenDatabase(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "-bridges", "-beside", "-naive"} {
			for _, kind := range []string{"pq-bench", "q-bench"} {
				left, err := db.Transact(func(tr fdb.Transaction) (any, error) {
					return tr.GetRange(subspace.Sub(kind+name), fdb.RangeOptions{Limit: 1}).GetSliceWithError()
				})
				if err != nil || len(left.([]fdb.KeyValue)) > 0 {
					t.Errorf("below %s there are %v (%v)", kind+name, left, err)
				}
			}
		}
	}
}
