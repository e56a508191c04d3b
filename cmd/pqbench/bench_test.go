package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/command"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// mainVariable makes the test binary pqbench, which the benchmark starts as its echo service.
const mainVariable = "TEST_MAIN"

// tags are those of this build, and leaks what they leave. The tag fdb sets them.
var (
	tags  string
	leaks []goleak.Option
)

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	harness.Main(m, leaks...)
}

// operations is the names of the rows, in their order.
const operations = "echo, push, push max_items, push Nats-Msg-Id, push header, push Pq-Group, producer, push.batch 100, peek.min, " +
	"pop.min, pop.min header, pop.min Pq-Group, pop.max, mixed, lease+ack, next, worker, pop.min 100, lease+ack 100"

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
		stdout, stderr, code := measure(append(strings.Fields(args), "--dir", t.TempDir())...)
		if code != command.ExitUsage || !strings.Contains(stderr, words) || stdout != "" {
			t.Errorf("%s: exit code %d, %q, %q; want words %q", args, code, stdout, stderr, words)
		}
	}
	_, stderr, code := measure("--store", "fdb", "--pqbridge", "p", "--nats-server", "n", "--dir", t.TempDir())
	if tags == "" && (code != command.ExitError || !strings.Contains(stderr, "build it with -tags fdb")) {
		t.Errorf("without FoundationDB: exit code %d, %q", code, stderr)
	}
}

// TestBench measures real programs. It cannot check the numbers, which depend on the machine.
func TestBench(t *testing.T) {
	table, rows := measured(t, "--backlog", "50,200", "--queues", "20", "--groups", "200", "--memory", "100", "--rounds", "2")
	wantRows(t, rows, operations+", pop.min of 50, pop.min of 200"+
		", push, one queue, pop.min, one queue, push, 20 queues, pop.min, 20 queues"+
		", pop.min, 100 small groups, pop.min past 1 group, 100 groups"+
		", waiting pop, queue in use, leased item")
	for _, row := range rows {
		if row.Items == 0 || row.Rate <= 0 || row.Ratio <= 0 || row.P50 <= 0 || row.P99 < row.P50 ||
			row.Client == nil || row.Service == nil || row.NATS == nil {
			t.Errorf("row %+v: want numbers", row)
		}
		if !strings.Contains(table, row.Name) {
			t.Errorf("%s is not in the table:\n%s", row.Name, table)
		}
	}

	if rows[1].Stolen == nil { // of push
		t.Errorf("row %+v: is the time of the machine unknown?", rows[1])
	}

	backlog, got := rows[len(rows)-10], ""
	for _, f := range backlog.Extra {
		got += fmt.Sprintf("%s %t, ", f.Name, f.Value > 0)
	}
	if got != "of the first true, peak true, ready after kill -9 true, " {
		t.Errorf("%s: figures %s", backlog.Name, got)
	}
}

// TestBenchJetStream measures consumers of the JetStream face, and of JetStream.
func TestBenchJetStream(t *testing.T) {
	_, rows := measured(t, "--jetstream", "--rounds", "1", "--only", "^(consumers 8|idle)")
	want := "echo"
	for _, name := range []string{
		"consumers 8, prefetch 1", "consumers 8, prefetch 10", "consumers 8, prefetch 500",
		"idle, push to a pull that waits", "idle, pull of an item",
	} {
		want += strings.Repeat(", "+name, 3)
	}
	wantRows(t, rows, want)
	for i, row := range rows[1:] {
		// What is of pqbridge is compared with both others.
		queue, compared := []string{"pqbridge", "memory", "file"}[i%3], []int{2, 0, 0}[i%3]
		if row.Queue != queue || row.Items == 0 || row.Rate <= 0 || len(row.Extra) != compared {
			t.Errorf("row %+v: want numbers of %s", row, queue)
		}
	}
}

// measure runs a short benchmark and returns its output and exit code.
func measure(args ...string) (stdout, stderr string, code int) {
	var out, problems strings.Builder
	args = append(strings.Fields("--seconds 0.05 --groups 0 --memory 0 --clients 8 --connections 2 --priorities 3"), args...)
	code = run(context.Background(), args, &out, &problems)
	return out.String(), problems.String(), code
}

// measured returns the table and the rows of a benchmark of programs built for it. It leaves no data behind.
func measured(t *testing.T, args ...string) (table string, rows []bench.Row) {
	t.Helper()
	harness.OnlyNightly(t)
	t.Setenv(mainVariable, "1")
	dir, programs := t.TempDir(), t.TempDir()
	build := harness.Command("go", "build", "-tags", tags, "-o", programs+"/",
		"github.com/pqbridge/pqbridge/cmd/pqbridge", "github.com/nats-io/nats-server/v2")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	file := filepath.Join(t.TempDir(), "result.json")
	table, stderr, code := measure(append(args, "--dir", dir, "--json", file,
		"--pqbridge", filepath.Join(programs, "pqbridge"), "--nats-server", filepath.Join(programs, "nats-server"))...)
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
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

// wantRows checks the names of rows.
func wantRows(t *testing.T, rows []bench.Row, want string) {
	t.Helper()
	var names []string
	for _, row := range rows {
		names = append(names, row.Name)
	}
	if got := strings.Join(names, ", "); got != want {
		t.Fatalf("rows %s, want %s", got, want)
	}
}
