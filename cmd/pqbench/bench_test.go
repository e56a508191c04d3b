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
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/command"
)

// operations is the names of the rows, in their order.
const operations = "echo, push, push max_items, push Nats-Msg-Id, push header, push Pq-Group, producer, push.batch 100, peek.min, pop.min, pop.min header, pop.min Pq-Group, pop.max, mixed, lease+ack, next, worker, pop.min 100, lease+ack 100"

func TestBenchOptionsThatDoNotFit(t *testing.T) {
	for words, args := range map[string]string{
		"several bridges can only share the store fdb": "--bridges 1,2 --pqbridge pqbridge",
		"bridges is 0":                             "--bridges 0 --pqbridge pqbridge --store fdb",
		"at least one client":                      "--clients 1 --connections 2",
		"bad regular expression":                   "--only (",
		"name the programs to measure":             "--nats-server nats-server",
		"unknown command":                          "measure",
		"unknown flag":                             "--fast",
		"rounds is 0":                              "--rounds 0",
		"a nanosecond for each round":              "--seconds 1e-6 --rounds 1001",
		"a cluster file is only for the store fdb": "--cluster-file fdb.cluster",
	} {
		fails(t, command.ExitUsage, words, strings.Fields(args)...)
	}
}

// TestBench measures real programs. It cannot check the numbers, which depend on the machine.
func TestBench(t *testing.T) {
	t.Setenv(mainVariable, "1") // for the echo service, which is this binary again
	table, rows := measured(t, t.TempDir(), "--backlog", "50,200", "--queues", "20", "--groups", "200", "--memory", "100", "--rounds", "2",
		"--pqbridge", program(t, "pqbridge"), "--nats-server", program(t, "nats-server"))

	want := operations + ", pop.min of 50, pop.min of 200" +
		", push, one queue, pop.min, one queue, push, 20 queues, pop.min, 20 queues" +
		", pop.min, 100 small groups, pop.min past 1 group, 100 groups" +
		", waiting pop, queue in use, leased item"
	if got := names(rows); got != want {
		t.Fatalf("rows %s, want %s", got, want)
	}
	for _, row := range rows {
		if row.Items == 0 || row.Rate <= 0 || row.Ratio <= 0 || row.P50 <= 0 || row.P99 < row.P50 ||
			row.Client == nil || row.Service == nil || row.NATS == nil {
			t.Errorf("row %+v: want numbers", row)
		}
		if !strings.Contains(table, row.Name) {
			t.Errorf("%s is not in the table:\n%s", row.Name, table)
		}
	}

	var got []string
	backlog := rows[len(rows)-10]
	for _, f := range backlog.Extra {
		got = append(got, f.Name)
		if f.Value <= 0 {
			t.Errorf("%s: %v", backlog.Name, f)
		}
	}
	if names := strings.Join(got, ", "); names != "of the first, peak, ready after kill -9" {
		t.Errorf("%s: figures %s", backlog.Name, names)
	}
}

// TestBenchJetStream measures consumers of the JetStream face, and of JetStream.
func TestBenchJetStream(t *testing.T) {
	t.Setenv(mainVariable, "1")
	_, rows := measured(t, t.TempDir(), "--jetstream", "--rounds", "1", "--only", "^(consumers 8|idle)",
		"--pqbridge", program(t, "pqbridge"), "--nats-server", program(t, "nats-server"))

	var want []string
	for _, name := range []string{"consumers 8, prefetch 1", "consumers 8, prefetch 10", "consumers 8, prefetch 500", "idle, push to a pull that waits", "idle, pull of an item"} {
		want = append(want, name, name, name)
	}
	if got := names(rows[1:]); got != strings.Join(want, ", ") {
		t.Fatalf("rows %s, want %s", got, want)
	}
	for i, row := range rows[1:] {
		if queue := []string{"pqbridge", "memory", "file"}[i%3]; row.Queue != queue || row.Items == 0 || row.Rate <= 0 {
			t.Errorf("row %+v: want numbers of %s", row, queue)
		}
		if compared := len(row.Extra); compared != []int{2, 0, 0}[i%3] {
			t.Errorf("row %+v: compared with %d others", row, compared)
		}
	}
}

// measured returns the table and the rows of a benchmark that leaves no data behind.
func measured(t *testing.T, dir string, args ...string) (table string, rows []bench.Row) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result.json")
	table = ok(t, append(args, "--dir", dir, "--json", file)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var row struct {
			bench.Setup
			bench.Row
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Clients != 8 || row.Sync <= 0 {
			t.Errorf("setup %+v", row.Setup)
		}
		rows = append(rows, row.Row)
	}
	left, err := filepath.Glob(filepath.Join(dir, "pq-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders %v are left (%v)", left, err)
	}
	return table, rows
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
