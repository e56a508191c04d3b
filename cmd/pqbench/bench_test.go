package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/testenv"
)

// operations is the names of the rows, in their order.
const operations = "echo, push, push max_items, push Nats-Msg-Id, producer, push.batch 100, peek.min, pop.min, pop.max, mixed, lease+ack, next, worker, pop.min 100, lease+ack 100"

func TestBenchOfRunningBridge(t *testing.T) {
	for _, flags := range []string{"", "--lean"} {
		t.Run("clients"+flags, func(t *testing.T) {
			t.Setenv(mainVariable, "1") // for the echo service, which is this binary again
			env := testenv.New(t, testenv.Options{})
			dir := t.TempDir()
			file := filepath.Join(dir, "result.json")
			args := []string{"--server", env.NATS.URL(), "--dir", dir, "--json", file, "--queues", "20"}
			table := ok(t, append(args, strings.Fields(flags)...)...)

			var report bench.Report
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &report); err != nil {
				t.Fatal(err)
			}
			for _, row := range report.Operations {
				if row.Count == 0 || row.Rate <= 0 || row.Ratio <= 0 || row.P50 <= 0 || row.P999 < row.P50 {
					t.Errorf("row %+v: want numbers", row)
				}
				if !strings.Contains(table, row.Name) {
					t.Errorf("%s is not in the table:\n%s", row.Name, table)
				}
			}
			if got, want := names(report.Operations), operations; got != want {
				t.Errorf("operations %s, want %s", got, want)
			}
			if q := report.Queues; q == nil || q.ManyPush <= 0 || q.ManyPop <= 0 || q.SinglePush <= 0 || q.SinglePop <= 0 {
				t.Errorf("queues %+v: want numbers", q)
			}
			if got := string(env.Request("pq.pq-bench.len", nil, nil).Data); got != `{"queue":"pq-bench","len":0}` {
				t.Errorf("items are left: %s", got)
			}
			left, err := filepath.Glob(filepath.Join(dir, "pq-bench-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("folders %v are left (%v)", left, err)
			}
		})
	}
}

func TestBenchTouchesNobodysItems(t *testing.T) {
	t.Setenv(mainVariable, "1")
	env := testenv.New(t, testenv.Options{})
	env.Request("pq.pq-bench.push", nil, []byte("precious"))
	fails(t, exitError, "queue pq-bench has 1 items", "--server", env.NATS.URL(), "--dir", t.TempDir())
	if got := string(env.Request("pq.pq-bench.pop.min", nil, nil).Data); got != "precious" {
		t.Errorf("popped %q", got)
	}
}

func TestBenchWithoutBridge(t *testing.T) {
	t.Setenv(mainVariable, "1")
	env := testenv.New(t, testenv.Options{})
	fails(t, exitError, "no bridge is listening on other.pq-bench.len", "--server", env.NATS.URL(), "--dir", t.TempDir(), "--prefix", "other")
}

func TestBenchOptionsThatDoNotFit(t *testing.T) {
	for words, args := range map[string]string{
		"name the pqbridge program":                    "--store fdb",
		"several bridges can only share the store fdb": "--bridges 1,2 --pqbridge pqbridge",
		"bridges is 0":                             "--bridges 0 --pqbridge pqbridge --store fdb",
		"at least one client":                      "--clients 1 --connections 2",
		"pqbridge program":                         "--nats-server nats-server",
		"bad regular expression":                   "--only (",
		"waiters is 0":                             "--waiters 0",
		"in services of their own":                 "--leased 1",
		"unknown command":                          "measure",
		"unknown flag":                             "--fast",
		"rounds is 0":                              "--rounds 0",
		"a nanosecond for each round":              "--seconds 1e-6 --rounds 1001",
		"a cluster file is only for the store fdb": "--cluster-file fdb.cluster",
	} {
		fails(t, exitUsage, words, strings.Fields(args)...)
	}
}

// TestBenchStartsItsProcesses measures real programs. It cannot check the numbers, which
// depend on the machine.
func TestBenchStartsItsProcesses(t *testing.T) {
	t.Setenv(mainVariable, "1")
	dir := t.TempDir()
	file := filepath.Join(dir, "result.json")
	table := ok(t, "--dir", dir, "--json", file, "--backlog", "50,200",
		"--idle-queues", "20", "--waiters", "5,10", "--leased", "2500", "--delayed", "400", "--delayed-queues", "20", "--only", "pop",
		"--rounds", "2", "--pqbridge", program(t, "pqbridge"), "--nats-server", program(t, "nats-server"))

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report bench.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if got, want := names(report.Operations), "echo, push, pop.min, pop.max, pop.min 100"; got != want || report.Sync <= 0 {
		t.Errorf("operations %s and a sync of %v, want %s", got, report.Sync, want)
	}
	checkRest(t, &report)
	if len(report.Backlogs) != 2 || !strings.Contains(table, "restart") {
		t.Fatalf("no backlogs in\n%s", table)
	}
	for i, row := range report.Backlogs {
		if row.Items != []int{50, 200}[i] || row.Rate <= 0 || row.Restart <= 0 {
			t.Errorf("backlog %+v: want numbers", row)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "pq-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders %v are left (%v)", left, err)
	}
}

// checkRest checks what TestBenchStartsItsProcesses measured of services at rest.
func checkRest(t *testing.T, report *bench.Report) {
	t.Helper()
	if row := report.Idle; row == nil || row.Queues != 20 || row.Transactions != 0 {
		t.Errorf("idle queues %+v: want 20, and no transactions", row)
	}
	if rows := report.Waiters; len(rows) != 2 || rows[0].Waiters != 5 || rows[1].Waiters != 10 || rows[1].Transactions != 0 {
		t.Errorf("waiters %+v: want 5 and 10, and no transactions", rows)
	}
	if row := report.Delayed; row == nil || row.Items != 400 || row.Transactions != 0 || row.DuePopWait <= 0 { // pops may leave nothing to sweep
		t.Errorf("delayed items %+v: want 400, and no transactions before they are due", row)
	}
	if row := report.Leased; row == nil || row.Items != 2500 || row.Lease <= 0 || row.First <= 0 || row.Last < row.First {
		t.Errorf("leased items %+v: want 2500, with times", row)
	}
}

// names returns the names of rows.
func names(rows []bench.Row) string {
	var list []string
	for _, row := range rows {
		list = append(list, row.Name)
	}
	return strings.Join(list, ", ")
}

// program returns one of the programs that are built once for all tests, which TestMain removes.
func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// programsDir is the folder of the programs, "" until they are needed.
var programsDir string

var programs = sync.OnceValues(func() (dir string, err error) {
	if programsDir, err = os.MkdirTemp("", "pq-bench-programs-"); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", buildTags, "-o", programsDir+"/",
		"github.com/pqbridge/pqbridge/cmd/pqbridge", "github.com/nats-io/nats-server/v2")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return programsDir, nil
})
