package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// What scripts rely on is as testdata/kept.txt says: exit codes, variables, commands and their
// flags, and the members that each command prints with --json.
func TestKept(t *testing.T) {
	c, _ := newCLI(t)
	lines := []string{fmt.Sprint("exit codes: success ", exitOK, ", failure ", exitError,
		", usage ", exitUsage, ", empty ", exitEmpty, ", not over ", exitNotOver,
		", signal ", exitSignal, "+")}
	for _, v := range login.Variables {
		lines = append(lines, "variable "+v.Variable)
	}

	withJSON := map[string]bool{}
	tree, _ := newRoot()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			lines = append(lines, fmt.Sprintf("flag %s --%s %s", cmd.CommandPath(), f.Name,
				f.Value.Type()))
			withJSON[cmd.CommandPath()] = withJSON[cmd.CommandPath()] || f.Name == "json"
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(tree)

	members := c.members()
	for command, prints := range withJSON {
		if prints && members[command] == nil {
			t.Errorf("the test does not run %s --json", command)
		}
		for _, name := range members[command] {
			lines = append(lines, "member "+command+" "+name)
		}
	}
	harness.Kept(t, "testdata/kept.txt", lines)
}

// members returns the names of the members of what each command prints with --json.
func (c *cli) members() map[string][]string {
	id, dead, waits := c.lives()
	c.ok("", "push", "jobs", "x", "-H", "Type: t", "--keep", "1h", "--ttl", "9h")
	found := map[string][]string{}
	run := func(stdin, line string) string {
		args := append(strings.Fields(line), "--json")
		stdout, stderr, code := c.run(stdin, args...)
		if stdout == "" { // pq doctor prints more if it fails
			c.t.Errorf("pq %s: exit code %d, %s", line, code, stderr)
		}

		tree, _ := newRoot()
		cmd, _, err := tree.Find(args)
		must(c.t, err)
		for all := json.NewDecoder(strings.NewReader(stdout)); all.More(); {
			var v any
			must(c.t, all.Decode(&v))
			found[cmd.CommandPath()] = append(found[cmd.CommandPath()], membersOf("", v)...)
		}
		return stdout
	}
	for _, line := range []string{
		"ls --traffic", "info jobs", "config jobs", "items jobs", "get jobs " + id,
		"get mail-dead " + dead, "peek mail", "trail jobs " + id, "dead mail",
		"dead mail --by cause", "done jobs", "done jobs --by type", "result jobs " + id,
		"find " + id, "rank mail " + waits,
		"schedule add jobs tick x --every 1h", "schedule ls jobs",
		"schedule pause jobs tick", "schedule resume jobs tick", "schedule run jobs tick",
		"schedule rm jobs tick", "doctor jobs", "push jobs v", "len jobs", "watch jobs --count 1",
		"mv mail " + waits + " 3", "redrive mail-dead " + dead, "redrive mail-dead --yes",
		"rm mail " + waits, "bench spare --count 10 --clients 4 --connections 2",
	} {
		run("", line)
	}
	leased := run("", "lease jobs")
	run("", "busy jobs")
	var it item
	decode(c.t, leased, &it)
	run("", "release jobs "+it.ID)
	run("", "pop jobs")
	c.ok("", "pause", "jobs")
	text, _, _ := c.run("", "export", "jobs")
	run(text, "import other")
	run("", "purge jobs --yes")
	run("", "delete jobs --yes")
	return found
}

// membersOf returns the names of all members in v, without names of headers and priorities.
func membersOf(prefix string, v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, is := range v {
			names = append(names, prefix+name)
			if name != "headers" && name != "priorities" {
				names = append(names, membersOf(prefix+name+".", is)...)
			}
		}
	case []any:
		for _, is := range v {
			names = append(names, membersOf(prefix, is)...)
		}
	}
	return names
}
