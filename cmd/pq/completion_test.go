package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestCompletion(t *testing.T) {
	c, _ := newCLIOn(t, testenv.Options{})
	contexts := newContexts(t)
	contexts.save("work", map[string]any{"url": c.server})
	contexts.save("play", map[string]any{"url": c.server})
	c.ok("", "push", "jobs", "x")
	c.ok("", "push", "reports", "x")
	c.ok("", "push", "--fifo", "mail", "x")
	for _, m := range []struct {
		want string
		args []string
	}{
		{"jobs reports", []string{"--server", c.server, "pop", ""}},
		{"mail", []string{"--server", c.server, "pop", "--fifo", ""}},
		{"jobs reports", []string{"--server", c.server, "info", ""}},
		{"jobs reports", []string{"--server", c.server, "watch", "jobs", ""}},
		{"", []string{"--server", c.server, "get", "jobs", ""}},
		{"max_deliver= max_leased= max_items= max_bytes= max_leased_per_group=", []string{"--server", c.server, "config", "jobs", "max"}},
		{"play work", []string{"pop", "--context", ""}},
		{"jobs reports", []string{"--context", "work", "pop", ""}},
		{"", []string{"--server", "nats://127.0.0.1:1", "pop", ""}},
	} {
		stdout, _, code := (&cli{t: t}).run("", append([]string{"__complete"}, m.args...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		got := slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, ":") || line == "" })
		if code != exitOK || strings.Join(got, " ") != m.want {
			t.Errorf("after pq %s: %q, want %q", strings.Join(m.args, " "), got, m.want)
		}
	}
}
