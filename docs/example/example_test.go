package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// TestJavaScript runs the producer and the worker in docs/example/javascript.
func TestJavaScript(t *testing.T) {
	t.Parallel() // these tests mostly wait for other processes
	dir := javaScript(t, "@nats-io/transport-node")
	story(t, testenv.Options{}, dir, []string{"node", "producer.js"}, []string{"node", "worker.js"})
}

// TestJetStreamJavaScript runs the program there that was written for JetStream.
func TestJetStreamJavaScript(t *testing.T) {
	t.Parallel()
	dir := javaScript(t, "@nats-io/transport-node", "@nats-io/jetstream")
	story(t, testenv.Options{JetStream: true}, dir, []string{"node", "jetstream.js", "push"}, []string{"node", "jetstream.js", "work"})
}

// javaScript returns a copy of docs/example/javascript where Node finds packages: in node_modules there, or through
// NODE_PATH. With PQ_TEST_NPM=1 it installs them.
func javaScript(t *testing.T, packages ...string) (dir string) {
	t.Helper()
	lookPath(t, "node")
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("javascript")); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("PQ_TEST_NPM") != "" {
		if out, err := command(dir, nil, "npm", "ci", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
		return dir
	}

	modules := filepath.Join(dir, "node_modules")
	for _, name := range packages {
		if _, err := os.Stat(filepath.Join(modules, filepath.FromSlash(name))); err == nil {
			continue
		}
		// Imports do not look at NODE_PATH, but require does.
		out, err := command(dir, nil, "node", "--print", "require.resolve('"+name+"')").Output()
		found, _, ok := strings.Cut(string(out), filepath.FromSlash(name))
		if err != nil || !ok {
			t.Skip("skipped: Node has no package " + name + "; NODE_PATH may name a folder with it, or PQ_TEST_NPM=1 have npm install it")
		}
		if err := os.Symlink(found, modules); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPython compiles the programs in docs/example/python, and runs them where nats-py is installed.
func TestPython(t *testing.T) {
	t.Parallel()
	lookPath(t, "python3")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("python")); err != nil {
		t.Fatal(err)
	}
	if out, err := command(dir, nil, "python3", "-m", "py_compile", "wire.py", "producer.py", "worker.py").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if command(dir, nil, "python3", "-c", "import nats").Run() != nil {
		t.Skip("skipped: Python has no package nats-py; the programs were only compiled")
	}
	story(t, testenv.Options{}, dir, []string{"python3", "producer.py"}, []string{"python3", "worker.py"})
}

// TestGo runs the program in docs/example/natsgo.
func TestGo(t *testing.T) {
	t.Parallel()
	dir := goProgram(t, "natsgo")
	story(t, testenv.Options{}, dir, []string{"./natsgo", "push"}, []string{"./natsgo", "work"})
}

// TestJetStreamGo runs the program in docs/example/jetstream.
func TestJetStreamGo(t *testing.T) {
	t.Parallel()
	dir := goProgram(t, "jetstream")
	story(t, testenv.Options{JetStream: true}, dir, []string{"./jetstream", "push"}, []string{"./jetstream", "work"})
}

// goProgram builds the program of a folder, and returns the folder that has it.
func goProgram(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := command(name, nil, "go", "build", "-o", filepath.Join(dir, name)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestRust parses the program in docs/example/rust. Compiling it would take minutes, and its crates.
func TestRust(t *testing.T) {
	t.Parallel()
	lookPath(t, "rustc")
	program, err := os.ReadFile(filepath.Join("rust", "src", "main.rs"))
	if err != nil {
		t.Fatal(err)
	}
	// What is left out by an attribute must be valid all the same, but names in it are not looked up.
	text := "#![allow(unexpected_cfgs)]\n#[cfg(any())] mod example {\n" + string(program) + "}\n"
	cmd := command(t.TempDir(), nil, "rustc", "--edition", "2021", "--crate-type", "lib", "--emit", "metadata", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNATSTool runs docs/example/shell/nats.sh.
func TestNATSTool(t *testing.T) {
	t.Parallel()
	lookPath(t, "nats")
	env := testenv.New(t, testenv.Options{})
	cmd := command("shell", env, "sh", "nats.sh")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	// The tool ends each payload with empty lines.
	got := strings.Fields(string(out))
	want := strings.Fields(`"duplicate":true {"queue":"jobs","len":2} acknowledged before write the report the queue is empty`)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: it printed\n%swant\n%s", err, out, strings.Join(want, " "))
	}
}

// story has a producer push three jobs, and push them again, and a worker do them, one of them at the second attempt.
func story(t *testing.T, o testenv.Options, dir string, producer, worker []string) {
	env := testenv.New(t, o)
	for _, want := range []string{"3 pushed, 0 were there before\n", "0 pushed, 3 were there before\n"} {
		cmd := command(dir, env, producer...)
		cmd.Stderr = t.Output()
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Fatalf("%v: it printed %q, want %q", err, out, want)
		}
	}
	cmd := command(dir, env, worker...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill() // the test has failed
			_ = cmd.Wait()
		}
	}()
	watchdog := time.AfterFunc(2*testenv.Patience, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(out)
	prints := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the worker printed %q, want %q", lines.Text(), want)
		}
	}
	prints("put out the fire (delivery 1)")
	prints("call back (delivery 1)")
	prints("call back (delivery 2)")
	prints("write the report (delivery 1)")
	jobs := client.New(env.Conn).PriorityQueue("jobs")
	testenv.Eventually(t, func() error { // until the last one is acknowledged
		info, err := jobs.Info(t.Context())
		if err == nil && info.Ready+info.Leased+info.Delayed > 0 {
			err = fmt.Errorf("there are %d ready, %d leased and %d delayed jobs", info.Ready, info.Leased, info.Delayed)
		}
		return err
	})
	// Now it waits for the next.
	if _, err := jobs.Push(t.Context(), 0, []byte("one more")); err != nil {
		t.Fatal(err)
	}
	prints("one more (delivery 1)")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the worker ended with %v", err)
	}
}

// lookPath skips the test where a program is missing.
func lookPath(t *testing.T, name string) {
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("skipped: " + name + " is not installed")
	}
}

func command(dir string, env *testenv.Env, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, os.Environ()
	if env != nil {
		// The nats tool would take the rest from the developer's contexts.
		cmd.Env = append(cmd.Env, "NATS_URL="+env.NATS.URL(), "XDG_CONFIG_HOME="+os.DevNull)
	}
	return cmd
}
