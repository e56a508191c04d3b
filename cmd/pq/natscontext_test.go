package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/testenv"
)

// contexts is a folder with contexts of the nats tool, which pq uses.
type contexts struct {
	t   *testing.T
	dir string
}

func newContexts(t *testing.T) *contexts {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")

	return &contexts{t, filepath.Join(home, ".config", "nats")}
}

// save writes a context, as nats context save does, and selects it.
func (c *contexts) save(name string, fields map[string]any) {
	c.t.Helper()
	text, err := json.Marshal(fields)
	must(c.t, err)
	must(c.t, os.MkdirAll(filepath.Join(c.dir, "context"), 0o700))
	must(c.t, os.WriteFile(filepath.Join(c.dir, "context", name+".json"), text, 0o600))
	must(c.t, os.WriteFile(filepath.Join(c.dir, "context.txt"), []byte(name), 0o600))
}

// A context says how to log in unless a flag or a variable says who does.
func TestLoginsOfContexts(t *testing.T) {
	url := newNATS(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "me", Password: "pass/word"}, {Username: "open"}}
	}).server
	c := newContexts(t)
	bare := &cli{t: t}
	// In a context, unlike in a flag, a user without a password is no token.
	c.save("open", map[string]any{"url": url, "user": "open"})

	bare.fails(exitError, "no bridge is listening", "len", "jobs")

	// Who says on the command line who logs in is not logged in as somebody else.
	c.save("me", map[string]any{"url": url, "user": "me", "password": "pass/word"})
	bare.fails(exitError, "uthorization", "len", "jobs", "--user", "open", "--password", "wrong")
}

// A context that pq cannot use is refused with the field that it does not know.
func TestBadContexts(t *testing.T) {
	c := newContexts(t)
	bare := &cli{t: t}
	bare.fails(exitUsage, "there is no context queues, because there is no file", "--context",
		"queues", "len", "jobs")
	bare.fails(exitUsage, "no name of a context", "--context", "../queues", "len", "jobs")

	for field, words := range map[string]string{
		"nsc":                "pq does not support nsc",
		"socks_proxy":        "pq does not support socks_proxy",
		"windows_cert_store": "pq does not support",
		"user_jwt":           "pq does not support user_jwt",
		"password":           "pq does not follow references",
	} {
		c.save("bad", map[string]any{field: "env://x"})
		bare.fails(exitUsage, "context bad: "+words, "len", "jobs")
	}

	// The secret of a context is of no use to somebody else.
	c.save("bad", map[string]any{"user_jwt": "x", "password": "env://x"})
	bare.fails(exitError, "", "len", "jobs", "--server", "nats://127.0.0.1:1", "--token", "t")

	c.save("bad", map[string]any{"cert": "x"})
	bare.fails(exitUsage, "--tlscert and --tlskey go together", "len", "jobs")
	must(t, os.WriteFile(filepath.Join(c.dir, "context", "bad.json"), []byte("{"), 0o600))

	bare.fails(exitUsage, "is not a JSON object of strings: save the context again", "len", "jobs")
	must(t, os.WriteFile(filepath.Join(c.dir, "context.txt"), nil, 0o600))
	bare.fails(exitError, "", "len", "jobs", "--server", "nats://127.0.0.1:1") // without a context
}

// A context may be deleted though it is selected. What needs no server works all the same, the rest
// says what to do.
func TestDeletedContext(t *testing.T) {
	c := newContexts(t)
	c.save("queues", map[string]any{"url": "nats://127.0.0.1:1"})
	must(t, os.Remove(filepath.Join(c.dir, "context", "queues.json")))

	bare := &cli{t: t}
	for _, args := range []string{
		"completion bash", "help", "help pop", "pop --help", "--version", "version",
		"__complete po", "__complete pop --ma", "__complete pop x",
	} {
		stdout, _, code := bare.run("", strings.Fields(args)...)
		if code != exitOK || stdout == "" {
			t.Errorf("pq %s: exit code %d, %q", args, code, stdout)
		}
	}

	const words = "pq: there is no context queues, because there is no file "
	_, stderr, code := bare.run("", "len", "jobs")
	if code != exitUsage || !strings.HasPrefix(stderr, words) || strings.Count(stderr, "\n") != 1 ||
		!strings.HasSuffix(stderr,
			": select another with nats context select, or name one with --context\n") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// A user without a password is a token, as the nats tool has it.
func TestUserAsToken(t *testing.T) {
	c := newNATS(t, func(o *server.Options) { o.Authorization = "secret" })
	c.fails(exitError, "no bridge is listening", "len", "jobs", "--user", "secret")
	c.fails(exitError, "uthorization", "len", "jobs", "--user", "wrong")
}

// A shell completes names of queues of the right kind, commands and fixed values.
func TestCompletion(t *testing.T) {
	c, _ := newCLIOn(t, testenv.Options{})
	contexts := newContexts(t)
	contexts.save("work", map[string]any{"url": c.server})
	c.ok("", "push", "jobs", "x")
	c.ok("", "push", "reports", "x")
	c.ok("", "push", "--fifo", "mail", "x")

	for _, m := range []struct {
		want string
		args []string
	}{
		{"jobs reports", []string{"--server", c.server, "pop", ""}},
		{"mail", []string{"--server", c.server, "pop", "--fifo", ""}},
		{"", []string{"--server", c.server, "get", "jobs", ""}},
		{"jobs reports", []string{"--server", c.server, "schedule", "run", ""}},
		{"", []string{"--server", c.server, "schedule", "add", "jobs", "n"}},
		{"", []string{"--server", c.server, "schedule", "rm", "jobs", ""}},
		{
			"ready delayed leased done",
			[]string{"--server", c.server, "items", "jobs", "--state", ""},
		},
		{"cause", []string{"--server", c.server, "dead", "--by", ""}},
		{"jobs reports", []string{"--context", "work", "pop", ""}},
		{"", []string{"--server", "nats://127.0.0.1:1", "pop", ""}},
	} {
		testenv.Eventually(t, func() error { // on a busy machine nobody may answer within a second
			stdout, _, code := (&cli{t: t}).run("", append([]string{"__complete"}, m.args...)...)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			got := slices.DeleteFunc(lines,
				func(line string) bool { return strings.HasPrefix(line, ":") || line == "" })

			if code != exitOK || strings.Join(got, " ") != m.want {
				return fmt.Errorf("after pq %s: %q, want %q", strings.Join(m.args, " "), got,
					m.want)
			}

			return nil
		})
	}
}
