package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/testenv"
)

// mainVariable makes the test binary the pq command.
const mainVariable = "TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	for _, e := range login.Variables {
		_ = os.Unsetenv(e.Variable) // the developer's settings are not for tests
	}
	_ = os.Setenv("XDG_CONFIG_HOME", os.DevNull) // no contexts
	goleak.VerifyTestMain(m, testenv.FDBGoroutines()...)
}

// cli runs command lines on a server.
type cli struct {
	t      *testing.T
	server string
}

func newCLI(t *testing.T) (*cli, *testenv.Env) {
	t.Helper()
	env := testenv.New(t, testenv.Options{})
	return &cli{t: t, server: env.NATS.URL()}, env
}

// run returns what the command printed and its exit code.
func (c *cli) run(stdin string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	var out, problems bytes.Buffer
	args = append([]string{"--server", c.server}, args...)
	err := run(context.Background(), args, strings.NewReader(stdin), &out, &problems)
	return out.String(), problems.String(), exitCode(err)
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

// fails checks a command's exit code and for words of its error.
func (c *cli) fails(code int, words string, args ...string) {
	c.t.Helper()
	stdout, stderr, got := c.run("", args...)
	if got != code || !strings.Contains(stderr, words) || stdout != "" {
		c.t.Errorf("pq %s: exit code %d and %q, want %d and words %q (standard output %q)",
			strings.Join(args, " "), got, stderr, code, words, stdout)
	}
}

// conn connects to the server.
func (c *cli) conn() *nats.Conn {
	c.t.Helper()
	nc, err := nats.Connect(c.server)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}
