package main

import (
	"context"
	"flag"
	"io"
	"log"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// mainVariable makes the test binary the pq command.
const mainVariable = "TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	if os.Getenv(bridgeVariable) != "" {
		log.Fatal(serveBridge())
	}

	for _, e := range login.Variables {
		_ = os.Unsetenv(e.Variable) // the developer's settings are not for tests
	}

	_ = os.Setenv("XDG_CONFIG_HOME", os.DevNull) // no contexts
	// No test fails because the machine is slow.
	_ = os.Setenv("NATS_TIMEOUT", testenv.Patience.String())
	_ = flag.Set("test.parallel", "8") // the tests mostly wait for other processes
	debug.SetGCPercent(400)            // each starts a server, which is soon garbage
	harness.Main(m, testenv.FDBGoroutines()...)
}

// cli runs command lines on a server, or, if it names none, as they are.
type cli struct {
	t      *testing.T
	server string
}

// newCLI has a NATS server and a bridge. The test runs beside others.
func newCLI(t *testing.T) (*cli, *testenv.Env) {
	t.Helper()
	t.Parallel()
	return newCLIOn(t, testenv.Options{})
}

// newCLIOn is newCLI with options, for a test that says itself whether it runs beside others.
func newCLIOn(t *testing.T, o testenv.Options) (*cli, *testenv.Env) {
	t.Helper()
	env := testenv.New(t, o)
	return &cli{t: t, server: env.NATS.URL()}, env
}

// newCLIWith has a NATS server with users whose passwords are their names. Who does not log in may
// do everything.
func newCLIWith(t *testing.T, users map[string]*server.Permissions) *cli {
	t.Helper()
	c, _ := newCLIOn(t, testenv.Options{NATS: func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "all", Password: "all"}}, "all"
		for name, permissions := range users {
			o.Users = append(o.Users,
				&server.User{Username: name, Password: name, Permissions: permissions})
		}
	}})

	return c
}

// publish allows and denies a user to publish to subjects.
func publish(allow, deny []string) *server.Permissions {
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: allow, Deny: deny}}
}

// newNATS has a NATS server without a bridge. change, if not nil, changes its options.
func newNATS(t *testing.T, change func(*server.Options)) *cli {
	t.Helper()
	env := testenv.New(t, testenv.Options{Stopped: true, NATS: change})
	env.NATS.Start()
	return &cli{t: t, server: env.NATS.URL()}
}

// run returns what the command printed and its exit code.
func (c *cli) run(stdin string, args ...string) (stdout, stderr string, code int) {
	var out strings.Builder
	stderr, code = c.runOn(strings.NewReader(stdin), &out, args...)
	return out.String(), stderr, code
}

// runOn is run with another input and output.
func (c *cli) runOn(stdin io.Reader, stdout io.Writer, args ...string) (stderr string, code int) {
	var problems strings.Builder
	args = append([]string{}, args...) // without any, they would be those of the test

	if c.server != "" {
		args = append([]string{"--server", c.server}, args...)
	}

	err := execute(context.Background(), args, stdin, stdout, &problems)
	return problems.String(), exitCode(err)
}

// item returns the item that a command prints.
func (c *cli) item(args ...string) (it item) {
	c.t.Helper()
	decode(c.t, c.ok("", append(args, "--json")...), &it)
	return it
}

// ok runs a command that must succeed, and returns what it printed.
func (c *cli) ok(stdin string, args ...string) string {
	c.t.Helper()
	stdout, stderr, code := c.run(stdin, args...)
	if code != exitOK || stderr != "" {
		c.t.Fatalf("pq %s: exit code %d, %s", strings.Join(args, " "), code, stderr)
	}

	return stdout
}

// prints checks what a command prints that must succeed.
func (c *cli) prints(want string, args ...string) {
	c.t.Helper()
	if got := c.ok("", args...); got != want {
		c.t.Errorf("pq %s printed %.300q, want %.300q", strings.Join(args, " "), got, want)
	}
}

// fails checks a command's exit code and for words of its error.
func (c *cli) fails(code int, words string, args ...string) {
	c.t.Helper()
	c.failsAfter(0, code, words, args...)
}

// findsNothing runs a command that waits for an item of an empty queue, again if the reply is five
// seconds overdue, which it is on a machine that stands still for as long.
func (c *cli) findsNothing(args ...string) {
	c.t.Helper()
	c.failsAfter(2, exitEmpty, "the queue is empty", args...)
}

// failsAfter is fails for a command that runs again, so many times at most, if its outcome is
// unknown.
func (c *cli) failsAfter(unknown, code int, words string, args ...string) {
	c.t.Helper()
	stdout, stderr, got := c.run("", args...)
	for ; unknown > 0 && strings.Contains(stderr, "the outcome is unknown"); unknown-- {
		c.t.Log(stderr)
		stdout, stderr, got = c.run("", args...)
	}
	if got != code || !strings.Contains(stderr, words) || stdout != "" {
		c.t.Errorf("pq %s: exit code %d and %q, want %d and words %q (standard output %q)",
			strings.Join(args, " "), got, stderr, code, words, stdout)
	}
}

// conn connects to the server.
func (c *cli) conn() *nats.Conn {
	c.t.Helper()
	nc, err := nats.Connect(c.server, nats.Timeout(testenv.Patience))
	must(c.t, err)

	c.t.Cleanup(nc.Close)
	return nc
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
