package harness

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const parentVariable = "HARNESS_PARENT"

// hungryVariable says how many MiB of memory a child takes.
const hungryVariable = "HARNESS_HUNGRY"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(hungryVariable)); err == nil {
		taken := make([]byte, n<<20)
		for i := range taken {
			taken[i] = 1
		}

		os.Exit(0)
	}

	if os.Getenv(parentVariable) != "" { // a test that starts a child and hangs
		child := Command("sleep", "3600")
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		fmt.Println(child.Process.Pid)
		time.Sleep(time.Hour) // select {} would be a deadlock, which ends it
	}

	Main(m)
}

// A child ends with a test that is killed.
func TestChildEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}

	parent := Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	line, err := bufio.NewReader(stdout).ReadString('\n')

	var pid int
	if _, scan := fmt.Sscan(line, &pid); scan != nil {
		parent.Process.Kill()
		t.Fatalf("the parent printed %q (%v)", line, err)
	}

	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the child does not run: %v", err)
	}

	parent.Process.Kill()
	for range 60_000 / 10 {
		if !runs(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d goes on without its parent", pid)

	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// runs reports whether a process is there; one that nobody has waited for yet has ended all the
// same.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// The names of tests that still run are found in the stacks, and only those.
func TestRunning(t *testing.T) {
	const stacks = `goroutine 7 [running]:
example.org/pq/bridge_test.TestPop.func1.2()
	/src/bridge/pop_test.go:17 +0x1
testing.tRunner(0x1, 0x2)
goroutine 8 [select]:
example.org/pq/bridge.(*lane).run(0x1)
example.org/pq/bridge.TestPush(0xc000)
`
	if got := strings.Join(running(stacks), " "); got != "TestPop TestPush" {
		t.Errorf("running tests are %q", got)
	}
}

// A failed test shows the end of a long text, and a file has all of it.
func TestShorten(t *testing.T) {
	if got := Shorten("log", "a\nb\n"); got != "a\nb\n" {
		t.Errorf("a short text became %q", got)
	}

	long := strings.Repeat("line\n", 500) + "last"
	got := Shorten("log", long)
	name, rest, _ := strings.Cut(got, ",")
	defer os.Remove(name)

	if all, err := os.ReadFile(name); err != nil || string(all) != long {
		t.Errorf("the file %q has %d bytes (%v), want %d", name, len(all), err, len(long))
	}
	if n := strings.Count(got, "\n"); n > 60 || !strings.HasSuffix(rest, "last") {
		t.Errorf("it prints %d lines, which end in %q", n, rest[len(rest)-10:])
	}
}

// A port is nobody else's, and a server can listen on it again and again.
func TestPort(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", Port(t))
	for range 3 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}

		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}

		c.Close()
		l.Close()
	}

	seen := map[int]bool{}
	for range 2000 {
		port := Port(t)
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}

		seen[port] = true
	}
}
