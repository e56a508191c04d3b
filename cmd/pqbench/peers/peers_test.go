package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

// mainVariable makes the test binary act as the program, which starts itself as the echo service.
const mainVariable = "TEST_MAIN"

// programs is the folder of the programs under test.
var programs string

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	os.Exit(testAll(m))
}

func testAll(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "pqbench-peers-"); err == nil {
		defer os.RemoveAll(programs)
		err = buildPrograms()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	for _, p := range peers() {
		if p.Missing != "" {
			fmt.Printf("skipped: tests of %s: %s\n", p.Name, p.Missing)
		}
	}
	if _, missing := find("strace"); missing != "" {
		fmt.Println("skipped: tests that peers sync the disk:", missing)
	}
	return code
}

// buildPrograms builds them in the module of the service.
func buildPrograms() error {
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", programs+"/", "./cmd/pqbridge", "github.com/nats-io/nats-server/v2")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func peers() []bench.Peer { return allPeers(filepath.Join(programs, "nats-server")) }

// eachPeer runs a test with each peer that is installed.
func eachPeer(t *testing.T, test func(t *testing.T, p bench.Peer, dir string)) {
	for _, p := range peers() {
		t.Run(p.Name, func(t *testing.T) {
			if p.Missing != "" {
				t.Skip(p.Missing)
			}
			test(t, p, folder(t))
		})
	}
}

// folder returns a temporary folder for a server, which other users can reach. TempDir's is closed
// to them.
func folder(t *testing.T) string {
	t.Helper()
	above, err := os.MkdirTemp("", "pqbench-peer-")
	dir := filepath.Join(above, "peer")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(above) })
		err = errors.Join(os.Mkdir(dir, 0o755), os.Chmod(above, 0o755))
	}
	must(t, err)
	return dir
}

// begin starts the server of a peer and connects clients.
func begin(t *testing.T, p bench.Peer, dir string, relaxed bool) (bench.PeerServer, []*bench.PeerClient) {
	t.Helper()
	server, err := p.Start(t.Context(), dir, relaxed)
	must(t, err)
	t.Cleanup(server.Stop)
	if server.Version() == "" {
		t.Error("no version")
	}
	return server, connect(t, server)
}

func connect(t *testing.T, server bench.PeerServer) []*bench.PeerClient {
	t.Helper()
	clients, err := server.Connect(t.Context(), 4, 2, 10)
	if err != nil || len(clients) != 4 {
		t.Fatalf("%d clients, %v: want 4", len(clients), err)
	}
	return clients
}

func push(t *testing.T, c *bench.PeerClient, items int) {
	t.Helper()
	for i := range items {
		if err := c.Push(t.Context(), []bench.PeerItem{{Priority: i % 10, Value: fmt.Appendf(nil, "item %d", i)}}); err != nil {
			t.Fatalf("push: %v", err)
		}
	}
}

// popAll returns how many items there are.
func popAll(t *testing.T, c *bench.PeerClient) int {
	t.Helper()
	for n := 0; ; n++ {
		values, err := c.Work(t.Context(), 1)
		if errors.Is(err, bench.ErrEmpty) {
			return n
		}
		if err != nil || len(values) != 1 || !bytes.HasPrefix(values[0], []byte("item")) {
			t.Fatalf("items %q, %v", values, err)
		}
	}
}

// Each operation of a peer does what it says, and acknowledged items outlive the server.
func TestPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, p bench.Peer, dir string) {
		server, clients := begin(t, p, dir, p.Relaxed)
		first, other := clients[0], clients[3]
		push(t, first, 30)
		left := 30
		if first.Pops != 0 {
			values, err := other.Pop(t.Context(), 1)
			if err != nil || len(values) != 1 || !bytes.HasPrefix(values[0], []byte("item")) {
				t.Fatalf("pop: %q, %v", values, err)
			}
			left--
		}
		server.Stop()

		_, clients = begin(t, p, dir, false)
		first, other = clients[0], clients[3]
		if n := popAll(t, other); n != left {
			t.Errorf("%d items after a restart, want %d", n, left)
		}
		rest(t, other)
		if first.Pushes&bench.Many == 0 {
			return
		}
		items := make([]bench.PeerItem, 50)
		for i := range items {
			items[i] = bench.PeerItem{Priority: i % 10, Value: []byte("item")}
		}
		if err := first.Push(t.Context(), items); err != nil {
			t.Fatalf("push many: %v", err)
		}
		left = 50
		for _, many := range []struct {
			name string
			has  bench.Sizes
			do   func(context.Context, int) ([][]byte, error)
		}{{"pop", other.Pops, other.Pop}, {"work", other.Works, other.Work}} {
			if many.has&bench.Many == 0 {
				continue
			}
			if values, err := many.do(t.Context(), 20); err != nil || len(values) != 20 {
				t.Errorf("%s many: %d items, %v: want 20", many.name, len(values), err)
			}
			left -= 20
			rest(t, other)
		}
		if n := popAll(t, first); n != left {
			t.Errorf("%d items are left, want %d", n, left)
		}
	})
}

func rest(t *testing.T, c *bench.PeerClient) {
	t.Helper()
	if c.Rest == nil {
		return
	}
	must(t, c.Rest())
}

// A peer syncs the disk before it answers a push: there are at least as many syncs as pushes, one
// after the other. What it does for other operations is printed with -v. Classic queues of RabbitMQ
// 4 do not, as the documents say.
func TestPeerSyncs(t *testing.T) {
	strace, missing := find("strace")
	if missing != "" {
		t.Skip(missing)
	}
	eachPeer(t, func(t *testing.T, p bench.Peer, dir string) {
		server, err := p.Start(t.Context(), dir, false)
		must(t, err)
		t.Cleanup(server.Stop)
		syncs := countSyncs(t, strace, server.(interface{ PID() int }).PID())
		const items = 20
		c := connect(t, server)[0]
		before := syncs()
		count := func(name string, do func()) int {
			do()
			now := syncs()
			n := now - before
			t.Logf("%s: %d syncs for %d items", name, n, items)
			before = now
			return n
		}
		take := func(one func(context.Context, int) ([][]byte, error)) {
			for range items {
				_, err := one(t.Context(), 1)
				must(t, err)
			}
		}
		unsynced := p.Name == "RabbitMQ classic" && !strings.HasPrefix(server.Version(), "3.")
		if n := count("push", func() { push(t, c, items) }); n < items != unsynced {
			t.Errorf("%d syncs for %d pushes to %s %s", n, items, p.Name, server.Version())
		}
		if c.Pops != 0 {
			count("pop", func() { take(c.Pop) })
			push(t, c, items)
			before = syncs()
		}
		count("work", func() { take(c.Work) })
	})
}

// countSyncs watches a process and those that it starts from then on. The function that it returns
// counts the calls that sync the disk so far.
func countSyncs(t *testing.T, strace string, pid int) func() int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, strace, "-f", "-p", fmt.Sprint(pid), "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-e", "signal=none", "-o", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
	})
	buffer := make([]byte, 1<<16)
	n, err := stderr.Read(buffer) // it says that it is attached
	if err != nil || !bytes.Contains(buffer[:n], []byte("attached")) {
		t.Skipf("strace cannot watch: %s %v", buffer[:n], err)
	}
	go func() {
		for err == nil {
			_, err = stderr.Read(buffer)
		}
	}()
	return func() int {
		text, err := os.ReadFile(file)
		must(t, err)
		calls := 0
		for l := range strings.Lines(string(text)) {
			if strings.Contains(l, "sync") && !strings.Contains(l, "resumed") {
				calls++
			}
		}
		return calls
	}
}

// The whole comparison, for a moment, with all peers that are installed.
func TestComparison(t *testing.T) {
	t.Setenv(mainVariable, "1")
	dir := filepath.Dir(folder(t))
	file := filepath.Join(t.TempDir(), "result.json")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"--pqbridge", filepath.Join(programs, "pqbridge"), "--nats-server", filepath.Join(programs, "nats-server"), "--dir", dir, "--json", file,
		"--seconds", "0.1", "--rounds", "1", "--clients", "6", "--connections", "2", "--backlog", "300", "--only", "^(push|pop|work)( 100)?$",
	}, &stdout, &stderr)
	if code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	t.Log(stdout.String())
	text, err := os.ReadFile(file)
	must(t, err)
	levels := map[string]int{"pqbridge": 1000, "Redis": 1000, "PostgreSQL": 1000, "RabbitMQ classic": 256, "beanstalkd": 1000, "JetStream": 1}
	seen := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var row bench.Row
		must(t, json.Unmarshal([]byte(line), &row))
		seen[row.Queue]++
		if row.Name != "order" {
			if row.Rate <= 0 || row.P50 <= 0 || row.Ratio <= 0 {
				t.Errorf("row %+v: want numbers", row)
			}
			continue
		}

		figures := map[string]float64{}
		for _, f := range row.Extra {
			figures[f.Name] = f.Value
		}
		want, known := levels[row.Queue]
		if row.Queue == "RabbitMQ quorum" {
			want, known = 1, true // up to version 4.2, whose two levels are mixed
			_, version, _ := strings.Cut(stdout.String(), "\n"+row.Queue+" ")
			if _, n, _ := quorum(version, 1000); n > 2 {
				want = n
			}
		}
		if got := figures["priorities in order"]; known && int(got) != want {
			t.Errorf("%s keeps %v priorities in order, want %d", row.Queue, got, want)
		}
		if lost, known := figures["items lost"]; lost > 0 || !known {
			t.Errorf("%s lost %v items", row.Queue, lost)
		}
	}
	for _, p := range peers() {
		if p.Missing == "" && seen[p.Name] == 0 || p.Missing != "" && !strings.Contains(stdout.String(), p.Name+" ("+p.Missing) {
			t.Errorf("%s has %d rows, and the table does not say why", p.Name, seen[p.Name])
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "pq-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders %v are left (%v)", left, err)
	}
}

func TestChoose(t *testing.T) {
	for names, want := range map[string]string{
		"":                       "Redis, PostgreSQL, RabbitMQ classic, RabbitMQ quorum, beanstalkd, JetStream",
		"beanstalkd,redis":       "beanstalkd, Redis",
		"rabbitmq":               "RabbitMQ classic, RabbitMQ quorum",
		"RabbitMQ quorum,quorum": "--peers: no peer is called \"quorum\"",
		"rabbitmq quorum":        "RabbitMQ quorum",
	} {
		chosen, err := choose(peers(), strings.FieldsFunc(names, func(r rune) bool { return r == ',' }))
		var got []string
		for _, p := range chosen {
			got = append(got, p.Name)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for words, args := range map[string]string{
		"name the programs to measure": "",
		"no peer is called \"kafka\"":  "--pqbridge p --nats-server n --peers kafka",
		"bad regular expression":       "--pqbridge p --nats-server n --only (",
		"clients is 0":                 "--pqbridge p --nats-server n --clients 0",
		"unknown flag":                 "--fast",
	} {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		code := run(ctx, strings.Fields(args), &stdout, &stderr)
		cancel()
		if code != 2 || !strings.Contains(stderr.String(), words) {
			t.Errorf("%s: exit code %d and %q, want 2 and %q", args, code, stderr.String(), words)
		}
	}
}
