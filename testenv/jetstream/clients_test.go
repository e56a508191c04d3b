package jetstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// start starts a bridge that serves JetStream's programs, and returns the URL of its server.
func start(t *testing.T) (url string) {
	t.Helper()
	env := testenv.New(t, testenv.Options{JetStream: true})
	js, err := jetstream.NewWithDomain(env.Conn, "pq")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		_, err := js.AccountInfo(t.Context())
		return err
	})
	return env.NATS.URL()
}

// programs copies a folder of programs to where their packages may be installed.
func programs(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command returns a command that has the URL of a server, if there is one.
func command(dir, url string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	// The nats tool would take the rest from the developer's contexts.
	cmd.Env = append(os.Environ(), "NATS_URL="+url, "XDG_CONFIG_HOME="+os.DevNull)
	return cmd
}

// succeeds runs a program, whose last line says what it did.
func succeeds(t *testing.T, dir string, args ...string) {
	t.Helper()
	url := start(t)
	out, err := command(dir, url, args...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; err != nil || !strings.HasSuffix(last, ": all calls succeeded") {
		t.Fatalf("%v: %v\n%s", args, err, out)
	} else {
		t.Log(last)
	}
}

// lookPath skips the test where a program is missing.
func lookPath(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("skipped: " + name + " is not installed")
	}
}

// TestJavaScript runs where Node finds @nats-io/jetstream and @nats-io/transport-node: in node_modules of
// javascript, or through NODE_PATH. With PQ_TEST_NPM=1 it installs them elsewhere.
func TestJavaScript(t *testing.T) {
	t.Parallel() // these tests mostly wait for other processes
	lookPath(t, "node")
	dir := programs(t, "javascript")
	modules := filepath.Join(dir, "node_modules")
	if os.Getenv("PQ_TEST_NPM") != "" {
		if out, err := command(dir, "", "npm", "ci", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
	} else if _, err := os.Stat(modules); err != nil {
		// Imports do not look at NODE_PATH, but require does.
		const name = "@nats-io/jetstream"
		out, err := command(dir, "", "node", "--print", "require.resolve('"+name+"')").Output()
		found, _, ok := strings.Cut(string(out), filepath.FromSlash(name))
		if err != nil || !ok {
			t.Skip("skipped: Node has no package " + name + "; NODE_PATH may name a folder with it, or PQ_TEST_NPM=1 have npm install it")
		}
		if err := os.Symlink(found, modules); err != nil {
			t.Fatal(err)
		}
	}
	succeeds(t, dir, "node", "calls.js")
}

// TestPython compiles the program, and runs it where nats-py is installed.
func TestPython(t *testing.T) {
	t.Parallel()
	lookPath(t, "python3")
	dir := programs(t, "python")
	if out, err := command(dir, "", "python3", "-m", "py_compile", "calls.py").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if command(dir, "", "python3", "-c", "import nats").Run() != nil {
		t.Skip("skipped: Python has no package nats-py; the program was only compiled")
	}
	succeeds(t, dir, "python3", "calls.py")
}

// TestNATSTool runs where the nats tool is installed.
func TestNATSTool(t *testing.T) {
	t.Parallel()
	lookPath(t, "nats")
	succeeds(t, programs(t, "shell"), "sh", "calls.sh")
}
