package peers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// programs is the folder of pqbridge and nats-server, built from this checkout.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	code := 1
	dir, err := os.MkdirTemp("", "peers-")
	if err == nil {
		programs = dir
		build := exec.Command("go", "build", "-o", dir+"/", "./cmd/pqbridge",
			"github.com/nats-io/nats-server/v2")
		build.Dir, build.Stderr = "../..", os.Stderr // the module of the service
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
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

// peers returns them in the order of the tables.
func peers() []Peer {
	return slices.Concat(
		[]Peer{pqbridge(filepath.Join(programs, "pqbridge")), redis(), postgreSQL(), riverQueue()},
		rabbitMQ(),
		[]Peer{beanstalkd(), jetStream(filepath.Join(programs, "nats-server"))})
}

// eachPeer runs a test with each peer that is installed.
func eachPeer(t *testing.T, test func(t *testing.T, p Peer, dir string)) {
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
func folder(tb testing.TB) string {
	tb.Helper()
	above, err := os.MkdirTemp("", "peer-")
	must(tb, err)

	tb.Cleanup(func() { _ = os.RemoveAll(above) })
	dir := filepath.Join(above, "peer")
	must(tb, errors.Join(os.Mkdir(dir, 0o755), os.Chmod(above, 0o755)))

	return dir
}

// connect returns the first and the last of the clients of a server.
func connect(t *testing.T, server *Server) (first, last *Client) {
	t.Helper()
	clients := server.Connect(4, 2, 10)
	if len(clients) != 4 {
		t.Fatalf("%d clients, want 4", len(clients))
	}

	return clients[0], clients[3]
}

// push pushes items in requests of a size.
func push(t *testing.T, c *Client, size, items int) {
	t.Helper()
	for i := range items / size {
		item := Item{Priority: i % 10, Value: []byte("item")}
		must(t, c.Push(t.Context(), slices.Repeat([]Item{item}, size)))
	}
}

// takes has one request pop or work off items, or none if the queue is empty.
func takes(t *testing.T, from func(context.Context, int) ([][]byte, error), want int) int {
	t.Helper()
	values, err := from(t.Context(), want)
	if errors.Is(err, ErrEmpty) {
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
	n, began := 0, time.Now()
	for took := 1; took == 1 || n < want && time.Since(began) < testenv.Patience; n += took {
		took = takes(t, from, 1) // none, too, if a busy server is later than a consumer waits
	}
	if n != want {
		t.Errorf("%d items are left, want %d", n, want)
	}
}

// Each operation of a peer does what it says, and acknowledged items outlive the server.
func TestPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, p Peer, dir string) {
		server := p.Start(t, dir)
		first, other := connect(t, server)
		push(t, first, 1, 30)
		left := 30

		if p.does(Pop) {
			left -= takes(t, other.Pop, 1)
		}

		server.Stop()

		first, other = connect(t, p.Start(t, dir))
		rest := func() {
			if other.Rest != nil {
				must(t, other.Rest())
			}
		}

		empties(t, other.Work, left)
		rest()

		if first.Shared != nil {
			push(t, first.Shared, 1, 30)
			empties(t, other.Shared.Work, 30)
			rest()
		}

		if !p.does(PushMany) {
			return
		}

		push(t, first, 50, 50)
		left = 50

		if p.does(PopMany) {
			left -= takes(t, other.Pop, 20)
			rest()
		}

		if p.does(WorkMany) {
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

	eachPeer(t, func(t *testing.T, p Peer, dir string) {
		server := p.Start(t, dir)
		syncs := countSyncs(t, strace, server.PID())
		const items = 20
		c, _ := connect(t, server)

		count := func(name string, do func()) {
			before := syncs()
			do()
			n := syncs() - before
			t.Logf("%s: %d syncs for %d items", name, n, items)

			unsynced := p.Name == "RabbitMQ_classic" && !strings.HasPrefix(server.Version, "3.")
			if name == "push" && n < items != unsynced {
				t.Errorf("%d syncs for %d pushes to %s %s", n, items, p.Name, server.Version)
			}
		}

		count("push", func() { push(t, c, 1, items) })
		if p.does(Pop) {
			count("pop", func() { empties(t, c.Pop, items) })
			push(t, c, 1, items)
		}

		count("work", func() { empties(t, c.Work, items) })
	})
}

// countSyncs watches a process and its later children. The returned function counts the calls that
// have synced the disk so far.
func countSyncs(t *testing.T, strace string, pid int) func() int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	cmd := harness.CommandContext(t.Context(), strace, "-f", "-p", fmt.Sprint(pid), "-o", file,
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

// Each peer keeps as many priorities apart as the documents say, and loses nothing. One client
// pushes an item of each priority, the least urgent first. A queue that takes several priorities
// for one returns these as they were pushed, so each group that is in order among the others is a
// level.
func TestOrder(t *testing.T) {
	const priorities = 1000
	eachPeer(t, func(t *testing.T, p Peer, dir string) {
		server := p.Start(t, dir)
		c := server.Connect(1, 1, priorities)[0]

		for priority := range priorities {
			priority = priorities - 1 - priority
			item := Item{Priority: priority, Value: []byte(strconv.Itoa(priority))}
			must(t, c.Push(t.Context(), []Item{item}))
		}

		pop := c.Pop
		if !p.does(Pop) {
			pop = c.Work
		}

		popped := make([]int, priorities)
		for i := range popped {
			var got [][]byte
			testenv.Eventually(t, func() (err error) { got, err = pop(t.Context(), 1); return err })

			var err error
			popped[i], err = strconv.Atoi(string(got[0]))
			must(t, err)
		}

		want := map[string]int{
			"RabbitMQ_classic": 256,
			"JetStream":        1,
			"RabbitMQ_quorum":  1,
			"River":            4,
		}[p.Name]

		_, declared, _ := declaration(true, server.Version, priorities)
		if p.Name == "RabbitMQ_quorum" && declared > 2 {
			want = declared // the two of version 4.2 and before are mixed
		}

		levels, inversions := order(popped)
		t.Logf("%d levels, %d pairs in the wrong order", levels, inversions)

		if want == 0 {
			want = priorities
		}
		if levels != want {
			t.Errorf("%d levels, want %d", levels, want)
		}
	})
}

// order counts the pairs in the wrong order, and the groups that are in order among each other.
func order(popped []int) (levels, inversions int) {
	for i := range popped {
		before, after := -1, popped[i]
		for _, p := range popped[:i] {
			before = max(before, p)
			if p > popped[i] {
				inversions++
			}
		}

		for _, p := range popped[i:] {
			after = min(after, p)
		}

		if before < after {
			levels++
		}
	}
	return levels, inversions
}
