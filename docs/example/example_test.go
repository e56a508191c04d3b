package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// mainVariable makes the test binary the program.
const mainVariable = "TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		os.Exit(0)
	}
	harness.Main(m)
}

// calls has programs that make all calls of JetStream's API that a bridge knows.
const calls = "../../testenv/jetstream"

// The README has the whole of main.go, which a newcomer can paste, and which runs.
func TestReadme(t *testing.T) {
	t.Parallel() // these tests mostly wait for other processes

	program, err := os.ReadFile("main.go")
	must(t, err)
	readme, err := os.ReadFile("../../README.md")
	must(t, err)

	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	_, whole, _ := strings.Cut(string(program), "\n") // without its comment
	if len(blocks) != 1 || blocks[0][1] != whole {
		t.Errorf("the README has %q: want all of main.go", blocks)
	}

	cmd := command(t.Context(), ".", testenv.New(t, testenv.Options{}), os.Args[0])
	cmd.Env = append(cmd.Env, mainVariable+"=1")

	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "put out the fire (delivery 1)\n" {
		t.Errorf("it printed %q, %v", out, err)
	}
}

// Every example that has the options to reconnect indefinitely itself also does so while the server
// refuses the login.
func TestExamplesOutliveRefusedLogins(t *testing.T) {
	// The Python client has no option for that: wire.py says what it does instead.
	options := map[string]string{
		"nats.MaxReconnects(-1)":   "nats.IgnoreAuthErrorAbort()",
		"maxReconnectAttempts: -1": "ignoreAuthErrorAbort: true",
	}

	found := 0
	for _, path := range testenv.Files(t, ".") {
		if path == "example_test.go" { // which has the words above
			continue
		}

		text, err := os.ReadFile(path)
		must(t, err)

		for forever, refused := range options {
			n, too := strings.Count(string(text), forever), strings.Count(string(text), refused)
			if found += n; n != too {
				t.Errorf("%s has %s %d times, and %s %d times", path, forever, n, refused, too)
			}
		}
	}
	if found == 0 {
		t.Error("no example reconnects indefinitely: does the test still see them?")
	}
}

// The programs in JavaScript push each job once, and do all of them.
func TestJavaScript(t *testing.T) {
	dir := javaScript(t, "javascript", "@nats-io/transport-node")
	env := testenv.New(t, testenv.Options{})
	wantJobsDone(t, env,
		run(t, dir, env, "node", "producer.js"),
		run(t, dir, env, "node", "worker.js"))
}

// The program for JetStream in JavaScript pushes each job once through a bridge, and does all of
// them.
func TestJetStreamJavaScript(t *testing.T) {
	dir := javaScript(t, "javascript", "@nats-io/transport-node", "@nats-io/jetstream")
	env := jetStream(t)
	wantJobsDone(t, env,
		run(t, dir, env, "node", "jetstream.js", "push"),
		run(t, dir, env, "node", "jetstream.js", "work"))
}

// All calls of JetStream's API that a bridge knows succeed from JavaScript.
func TestJetStreamCallsJavaScript(t *testing.T) {
	runCalls(t, javaScript(t, calls+"/javascript", "@nats-io/jetstream"), "node", "calls.js")
}

// The programs in Python push each job once, and do all of them.
func TestPython(t *testing.T) {
	dir := python(t, "python", "wire.py", "producer.py", "worker.py")
	env := testenv.New(t, testenv.Options{})
	wantJobsDone(t, env, run(t, dir, env, "python3", "producer.py"),
		run(t, dir, env, "python3", "worker.py"))
}

// All calls of JetStream's API that a bridge knows succeed from Python.
func TestJetStreamCallsPython(t *testing.T) {
	runCalls(t, python(t, calls+"/python", "calls.py"), "python3", "calls.py")
}

// The program in Rust pushes each job once, and does all of them.
func TestRust(t *testing.T) {
	program := rust(t, "pqbridge-example")
	env := testenv.New(t, testenv.Options{})
	wantJobsDone(t, env, run(t, ".", env, program, "push"), run(t, ".", env, program, "work"))
}

// All calls of JetStream's API that a bridge knows succeed from Rust.
func TestJetStreamCallsRust(t *testing.T) {
	runCalls(t, ".", rust(t, "pqbridge-jetstream-test"))
}

// The commands with the nats tool push, count, lease, acknowledge and pop, up to the empty queue.
func TestNATSTool(t *testing.T) {
	needs(t, "nats")
	var out strings.Builder
	env := testenv.New(t, testenv.Options{})

	err := run(t, "shell", env, "sh", "nats.sh")(t.Context(), &out)

	got := strings.Fields(out.String()) // the tool ends each payload with empty lines
	want := strings.Fields(`"duplicate":true {"queue":"jobs","len":2} acknowledged before ` +
		`write the report the queue is empty`)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: it printed\n%swant\n%s", err, &out, strings.Join(want, " "))
	}
}

// All calls of JetStream's API that a bridge knows succeed from the nats tool.
func TestJetStreamCallsNATSTool(t *testing.T) {
	needs(t, "nats")
	runCalls(t, calls+"/shell", "sh", "calls.sh")
}

// program runs until ctx ends, unless it is done before.
type program func(ctx context.Context, out io.Writer) error

// run is a program that SIGTERM ends.
func run(t *testing.T, dir string, env *testenv.Env, args ...string) program {
	return func(ctx context.Context, out io.Writer) error {
		cmd := command(ctx, dir, env, args...)
		cmd.Stdout, cmd.Stderr = out, t.Output()
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = testenv.Patience

		if err := cmd.Run(); !errors.Is(err, context.Canceled) { // that is success
			return err
		}

		return nil
	}
}

// wantJobsDone has a producer push three jobs, and push them again, and a worker do them, one of
// them at the second attempt.
func wantJobsDone(t *testing.T, env *testenv.Env, producer, worker program) {
	t.Helper()
	for _, want := range []string{
		"3 pushed, 0 were there before\n",
		"0 pushed, 3 were there before\n",
	} {
		var out strings.Builder
		if err := producer(t.Context(), &out); err != nil || out.String() != want {
			t.Fatalf("%v: it printed %q, want %q", err, &out, want)
		}
	}

	ctx, stop := context.WithTimeout(t.Context(), 2*testenv.Patience)
	r, w := io.Pipe()
	done := make(chan error, 1)

	go func() {
		err := worker(ctx, w)
		_ = w.Close() // never returns an error
		done <- err
	}()

	defer func() {
		stop()
		_ = r.Close() // never returns an error
		if err := <-done; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	}()

	lines := bufio.NewScanner(r)
	wantPrinted := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the worker printed %q, want %q", lines.Text(), want)
		}
	}

	wantPrinted("put out the fire (delivery 1)")
	wantPrinted("call back (delivery 1)")
	wantPrinted("call back (delivery 2)")
	wantPrinted("write the report (delivery 1)")

	queue := client.New(env.Conn).PriorityQueue("jobs")
	testenv.Eventually(t, func() error { // until the last one is acknowledged
		info, err := queue.Info(t.Context())
		if err == nil && info.Ready+info.Leased+info.Delayed > 0 {
			err = fmt.Errorf("there are %d ready, %d leased and %d delayed jobs",
				info.Ready, info.Leased, info.Delayed)
		}

		return err
	})

	// Now it waits for the next.
	_, err := queue.Push(t.Context(), 0, []byte("one more"))
	must(t, err)
	wantPrinted("one more (delivery 1)")
}

// runCalls runs a program that makes calls of JetStream's API. Its last line has to say that all
// succeeded.
func runCalls(t *testing.T, dir string, args ...string) {
	t.Helper()
	out, err := command(t.Context(), dir, jetStream(t), args...).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), ": all calls succeeded") {
		t.Fatalf("%v: %v\n%s", args, err, harness.Shorten(args[0], string(out)))
	}
}

// jetStream starts a bridge that serves JetStream's programs.
func jetStream(t *testing.T) *testenv.Env {
	t.Helper()
	env := testenv.New(t, testenv.Options{JetStream: true})
	js, err := jetstream.NewWithDomain(env.Conn, "pq")
	must(t, err)

	testenv.Eventually(t, func() error {
		_, err := js.AccountInfo(t.Context())
		return err
	})

	return env
}

// needs skips a test unless it is one for other languages, and a program is there. It runs beside
// others.
func needs(t *testing.T, name string) {
	t.Helper()
	harness.OnlyClients(t)
	t.Parallel()

	if _, err := exec.LookPath(name); err != nil {
		t.Skip("skipped: " + name + " is not installed")
	}
}

// copied returns a copy of a folder of programs, where packages can be installed.
func copied(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(name)))
	return dir
}

// python returns a copy of a folder whose programs compile, where nats-py is installed.
func python(t *testing.T, name string, programs ...string) (dir string) {
	t.Helper()
	needs(t, "python3")
	dir = copied(t, name)

	args := append([]string{"python3", "-m", "py_compile"}, programs...)
	if out, err := command(t.Context(), dir, nil, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, harness.Shorten("python3", string(out)))
	}

	if command(t.Context(), dir, nil, "python3", "-c", "import nats").Run() != nil {
		t.Skip("skipped: Python has no package nats-py; the programs were only compiled")
	}

	return dir
}

// javaScript returns a copy of a folder where Node finds packages: in node_modules there, or
// through NODE_PATH. With PQ_TEST_NPM=1 it installs them.
func javaScript(t *testing.T, name string, packages ...string) (dir string) {
	t.Helper()
	needs(t, "node")
	dir = copied(t, name)

	if os.Getenv("PQ_TEST_NPM") != "" {
		npm := command(t.Context(), dir, nil, "npm", "ci", "--no-audit", "--no-fund")
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, harness.Shorten("npm", string(out)))
		}
		return dir
	}

	modules := filepath.Join(dir, "node_modules")
	for _, name := range packages {
		if _, err := os.Stat(filepath.Join(modules, filepath.FromSlash(name))); err == nil {
			continue
		}

		// Imports do not look at NODE_PATH, but require does.
		resolve := "require.resolve('" + name + "')"
		out, err := command(t.Context(), dir, nil, "node", "--print", resolve).Output()
		found, _, ok := strings.Cut(string(out), filepath.FromSlash(name))
		if err != nil || !ok {
			t.Skip("skipped: Node has no package " + name +
				"; NODE_PATH may name a folder with it, or PQ_TEST_NPM=1 have npm install it")
		}
		must(t, os.Symlink(found, modules))
	}

	return dir
}

// rust returns the path of a program that make test-clients has built, with crates of crates.io.
func rust(t *testing.T, name string) (path string) {
	t.Helper()
	needs(t, "cargo")

	path, err := filepath.Abs(filepath.Join("../../bin/rust/debug", name))
	must(t, err)
	switch _, err := os.Stat(path); {
	case err != nil && harness.AllClients:
		t.Fatal("make test-clients has not built " + name)
	case err != nil:
		t.Skip("skipped: make test-clients has not built " + name)
	}

	return path
}

// command returns a command that knows the URL of the server, if there is one.
func command(ctx context.Context, dir string, env *testenv.Env, args ...string) *exec.Cmd {
	cmd := harness.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, os.Environ()

	if env != nil {
		// The nats tool would take the rest from the developer's contexts.
		cmd.Env = append(cmd.Env, "NATS_URL="+env.NATS.URL(), "XDG_CONFIG_HOME="+os.DevNull)
	}

	return cmd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A consumer as docs/jetstream.md shows it serves the largest priority first.
func TestJetStreamConsumer(t *testing.T) {
	t.Parallel()

	ctx := t.Context()
	env := jetStream(t)
	js, err := jetstream.NewWithDomain(env.Conn, "pq",
		jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)

	jobs := client.New(env.Conn).PriorityQueue("jobs")
	for priority := range int64(3) {
		_, err := jobs.Push(ctx, priority, fmt.Append(nil, priority))
		must(t, err)
	}

	lowest, err := js.CreateOrUpdateConsumer(ctx, "jobs", jetstream.ConsumerConfig{
		Durable:       "lowest-first",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       time.Minute,
		MaxAckPending: 10,
		Metadata:      map[string]string{"pq.order": "max"},
	})
	must(t, err)

	for want := 2; want >= 0; want-- {
		job, err := lowest.Next(jetstream.FetchMaxWait(testenv.Patience))
		must(t, err)
		if got := string(job.Data()); got != fmt.Sprint(want) {
			t.Errorf("got job %s, want %d", got, want)
		}
		must(t, job.DoubleAck(ctx))
	}
}
