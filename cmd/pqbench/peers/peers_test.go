package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	code := 1
	dir, err := os.MkdirTemp("", "pqbench-peers-")
	if err == nil {
		programs = dir
		build := exec.Command("go", "build", "-o", dir+"/", "./cmd/pqbridge", "github.com/nats-io/nats-server/v2")
		build.Dir, build.Stderr = "../../..", os.Stderr // the module of the service
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
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

// begin starts the server of a peer.
func begin(t *testing.T, p bench.Peer, dir string, relaxed bool) bench.PeerServer {
	t.Helper()
	server, err := p.Start(t.Context(), dir, relaxed)
	must(t, err)
	t.Cleanup(server.Stop)
	if server.Version() == "" {
		t.Error("no version")
	}
	return server
}

// connect returns the first and the last of the clients of a server.
func connect(t *testing.T, server bench.PeerServer) (first, last *bench.PeerClient) {
	t.Helper()
	clients, err := server.Connect(t.Context(), 4, 2, 10)
	if err != nil || len(clients) != 4 {
		t.Fatalf("%d clients, %v: want 4", len(clients), err)
	}
	return clients[0], clients[3]
}

// push pushes items in requests of a size.
func push(t *testing.T, c *bench.PeerClient, size, items int) {
	t.Helper()
	for i := range items / size {
		must(t, c.Push(t.Context(), slices.Repeat([]bench.PeerItem{{Priority: i % 10, Value: []byte("item")}}, size)))
	}
}

// takes has one request pop or work off items, or none if the queue is empty.
func takes(t *testing.T, from func(context.Context, int) ([][]byte, error), want int) int {
	t.Helper()
	values, err := from(t.Context(), want)
	if errors.Is(err, bench.ErrEmpty) {
		return 0
	}
	if err != nil || len(values) != want || !bytes.HasPrefix(values[0], []byte("item")) {
		t.Fatalf("%q, %v: want %d items", values, err, want)
	}
	return want
}

// empties pops or works off all items one by one, and checks how many there were.
func empties(t *testing.T, from func(context.Context, int) ([][]byte, error), want int) {
	t.Helper()
	n := 0
	for takes(t, from, 1) == 1 {
		n++
	}
	if n != want {
		t.Errorf("%d items are left, want %d", n, want)
	}
}

// Each operation of a peer does what it says, and acknowledged items outlive the server.
func TestPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, p bench.Peer, dir string) {
		server := begin(t, p, dir, p.Relaxed)
		first, other := connect(t, server)
		push(t, first, 1, 30)
		left := 30
		if first.Pops != 0 {
			left -= takes(t, other.Pop, 1)
		}
		server.Stop()

		first, other = connect(t, begin(t, p, dir, false))
		rest := func() {
			if other.Rest != nil {
				must(t, other.Rest())
			}
		}
		empties(t, other.Work, left)
		rest()
		if first.Pushes&bench.Many == 0 {
			return
		}
		push(t, first, 50, 50)
		left = 50
		if other.Pops&bench.Many != 0 {
			left -= takes(t, other.Pop, 20)
			rest()
		}
		if other.Works&bench.Many != 0 {
			left -= takes(t, other.Work, 20)
			rest()
		}
		empties(t, first.Work, left)
	})
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
		server := begin(t, p, dir, false)
		syncs := countSyncs(t, strace, server.(interface{ PID() int }).PID())
		const items = 20
		c, _ := connect(t, server)
		count := func(name string, do func()) {
			before := syncs()
			do()
			n := syncs() - before
			t.Logf("%s: %d syncs for %d items", name, n, items)
			unsynced := p.Name == "RabbitMQ classic" && !strings.HasPrefix(server.Version(), "3.")
			if name == "push" && n < items != unsynced {
				t.Errorf("%d syncs for %d pushes to %s %s", n, items, p.Name, server.Version())
			}
		}
		count("push", func() { push(t, c, 1, items) })
		if c.Pops != 0 {
			count("pop", func() { empties(t, c.Pop, items) })
			push(t, c, 1, items)
		}
		count("work", func() { empties(t, c.Work, items) })
	})
}

// countSyncs watches a process and those that it starts from then on. The function that it returns
// counts the calls that sync the disk so far.
func countSyncs(t *testing.T, strace string, pid int) func() int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-p", fmt.Sprint(pid), "-o", file,
		"-e", "trace=fsync,fdatasync,sync_file_range,msync", "-e", "signal=none")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr, err := cmd.StderrPipe()
	must(t, errors.Join(err, cmd.Start()))
	t.Cleanup(func() { _ = cmd.Wait() }) // it is interrupted by then
	said := bufio.NewReader(stderr)
	if line, err := said.ReadString('\n'); !strings.Contains(line, "attached") {
		t.Skipf("strace cannot watch: %s %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return func() int {
		text, err := os.ReadFile(file)
		must(t, err)
		return len(regexp.MustCompile(`(?m)^\d+ +\w*sync\w*\(`).FindAll(text, -1))
	}
}

// The whole comparison, for a moment, with all peers that are installed.
func TestComparison(t *testing.T) {
	t.Setenv(mainVariable, "1")
	dir := filepath.Dir(folder(t))
	file := filepath.Join(t.TempDir(), "result.json")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(strings.Fields(
		"--seconds 0.1 --rounds 1 --clients 6 --connections 2 --backlog 300 --only ^(push|pop|work)(\\x20100)?$"),
		"--pqbridge", filepath.Join(programs, "pqbridge"), "--nats-server", filepath.Join(programs, "nats-server"),
		"--dir", dir, "--json", file), &stdout, &stderr)
	if code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	t.Log(stdout.String())
	text, err := os.ReadFile(file)
	must(t, err)
	levels := map[string]int{
		"pqbridge": 1000, "Redis": 1000, "PostgreSQL": 1000, "RabbitMQ classic": 256, "beanstalkd": 1000, "JetStream": 1,
		"RabbitMQ quorum": 1, // up to version 4.2, whose two levels are mixed
	}
	_, version, _ := strings.Cut(stdout.String(), "\nRabbitMQ quorum ")
	if _, n, _ := quorum(version, 1000); n > 2 {
		levels["RabbitMQ quorum"] = n
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var row bench.Row
		must(t, json.Unmarshal([]byte(line), &row))
		seen[row.Queue]++
		figures := map[string]float64{"items lost": -1}
		for _, f := range row.Extra {
			figures[f.Name] = f.Value
		}
		want, known := levels[row.Queue]
		switch got := figures["priorities in order"]; {
		case row.Name != "order":
			if row.Rate <= 0 || row.P50 <= 0 || row.Ratio <= 0 {
				t.Errorf("row %+v: want numbers", row)
			}
		case known && int(got) != want || figures["items lost"] != 0:
			t.Errorf("%s: %v; want %d priorities in order, and none lost", row.Queue, figures, want)
		}
	}
	for _, p := range peers() {
		said := strings.Contains(stdout.String(), p.Name+" ("+p.Missing)
		if p.Missing == "" && seen[p.Name] == 0 || p.Missing != "" && !said {
			t.Errorf("%s has %d rows, and the table does not say why", p.Name, seen[p.Name])
		}
	}
}

func TestChoose(t *testing.T) {
	for names, want := range map[string]string{
		"":                       "Redis, PostgreSQL, RabbitMQ classic, RabbitMQ quorum, beanstalkd, JetStream, <nil>",
		"beanstalkd,redis":       "beanstalkd, Redis, <nil>",
		"rabbitmq":               "RabbitMQ classic, RabbitMQ quorum, <nil>",
		"rabbitmq quorum":        "RabbitMQ quorum, <nil>",
		"RabbitMQ quorum,quorum": `--peers: no peer is called "quorum"`,
	} {
		chosen, err := choose(peers(), strings.FieldsFunc(names, func(r rune) bool { return r == ',' }))
		got := ""
		for _, p := range chosen {
			got += p.Name + ", "
		}
		if got += fmt.Sprint(err); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}

	// On the command line it is a mistake of use.
	var stderr strings.Builder
	code := run(t.Context(), strings.Fields("--pqbridge p --nats-server n --peers kafka"), io.Discard, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), `no peer is called "kafka"`) {
		t.Errorf("exit code %d and %q", code, stderr.String())
	}
}
