package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// mainVariable makes the test binary act as pqbridge.
const mainVariable = "TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		os.Exit(0)
	}

	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PQ_") && !strings.HasPrefix(name, "PQ_TEST_") {
			_ = os.Unsetenv(name) // tests must not use the developer's settings
		}
	}

	harness.Main(m, testenv.FDBGoroutines()...)
}

// command is pqbridge in a process of its own.
type command struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr harness.Transcript
	nats   string // URL of the NATS server that -dev started
	http   string // address of /readyz and others
}

// environment is the environment of this process without any PQ_ variables, plus those
// given. No test fails because the machine is slow.
func environment(variables ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PQ_") {
			env = append(env, entry)
		}
	}

	env = append(env, mainVariable+"=1", "PQ_HTTP_ADDR=127.0.0.1:0", "PQ_DEV_NATS_PORT=0",
		"PQ_REQUEST_TIMEOUT="+testenv.Patience.String(), "PQ_HTTP_TIMEOUT=20s")
	return append(env, variables...)
}

// newCommand returns pqbridge with variables, which has not begun.
func newCommand(t *testing.T, variables []string, args ...string) *command {
	c := &command{t: t, cmd: harness.Command(os.Args[0], args...)}
	c.cmd.Env = environment(variables...)
	c.cmd.Stderr = &c.stderr
	return c
}

// start starts the process, which is killed if it is still there in the end.
func (c *command) start() {
	c.t.Helper()
	must(c.t, c.cmd.Start())

	c.t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.kill()
		}
	})
}

// setenv sets variables of this process for a test.
func setenv(t *testing.T, variables map[string]string) {
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// startDev starts pqbridge -dev and waits until it says that it is ready.
func startDev(t *testing.T, variables ...string) *command {
	t.Helper()
	c := newCommand(t, variables, "-dev")
	c.startDev()

	return c
}

// startDev starts a command that runs pqbridge -dev and waits until it says that it is ready.
func (c *command) startDev() {
	c.t.Helper()
	stdout, err := c.cmd.StdoutPipe()
	must(c.t, err)

	c.start()
	ready := regexp.MustCompile(`^Ready\. NATS is at (\S+), health and metrics at http://(\S+)\.$`)
	lines := bufio.NewScanner(stdout)

	for lines.Scan() {
		if found := ready.FindStringSubmatch(lines.Text()); found != nil {
			c.nats, c.http = found[1], found[2]
			return
		}
	}
	c.t.Fatalf("pqbridge -dev ended (%v):\n%s", c.cmd.Wait(), c.log())
}

// log is the end of what the process has logged, for a test that fails.
func (c *command) log() string { return harness.Shorten("pqbridge", c.stderr.String()) }

// says waits until the process has logged words.
func (c *command) says(words string) {
	c.t.Helper()
	awaitLog(c.t, &c.stderr, words)
}

// kill is kill -9.
func (c *command) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Error(err)
	}

	var killed *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &killed) {
		c.t.Errorf("after kill -9: %v\n%s", err, c.log())
	}
}

// unconfirmed is testenv.Unconfirmed at the end of a log.
var unconfirmed = regexp.MustCompile(`pqbridge: (bridge: NATS did not confirm.*\n)+\z`)

// stop sends a signal; the process must exit with code 0, unless its end is unconfirmed.
func (c *command) stop(signal syscall.Signal) {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(signal))
	if err := c.cmd.Wait(); err != nil && !unconfirmed.MatchString(c.stderr.String()) {
		c.t.Errorf("after %v: %v\n%s", signal, err, c.log())
	}
}

// runCommand runs pqbridge until it exits.
func runCommand(t *testing.T, args, variables []string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	cmd := harness.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = environment(variables...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()

	return out.String(), problems.String(), err
}

// refuses runs pqbridge, which must end with an error that has words.
func refuses(t *testing.T, args, variables []string, words ...string) {
	t.Helper()
	_, stderr, err := runCommand(t, args, variables)
	if err == nil {
		t.Error("no error")
	}
	wantWords(t, stderr, words...)
}

// wantWords checks that a text has words.
func wantWords(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in\n%s", w, harness.Shorten("text", text))
		}
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A duration in the log is the same text in both formats, and not bare nanoseconds in JSON.
func TestDurationsInTheLog(t *testing.T) {
	for format, want := range map[string]string{"json": `"timeout":"7s"`, "text": "timeout=7s"} {
		var log bytes.Buffer

		newLogger(&config{LogFormat: format}, &log).Info("shutting down", "timeout", 7*time.Second)

		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: %s lacks %s", format, log.String(), want)
		}
	}
}
