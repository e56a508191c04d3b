package main

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// an id, as a bridge makes them.
const someID = "FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"

// everyCommand has a command line for each thing that pq asks a bridge for.
var everyCommand = []struct {
	args string
	// misspelt is the exit code, and the words, if nobody uses the queue.
	misspelt int
	words    string
}{
	{args: "push jbos x"},
	{args: "push jbos --lines"},
	{args: "pop jbos", misspelt: exitEmpty, words: "the queue is empty"},
	{args: "peek jbos", misspelt: exitEmpty, words: "the queue is empty"},
	{args: "len jbos"},
	{args: "bench jbos push --count 1"},
	{args: "work jbos -- true", misspelt: -1}, // it waits for items
	{args: "lease jbos", misspelt: exitEmpty, words: "the queue is empty"},
	{args: "ack " + receiptExample, misspelt: exitError, words: "(4"},
	{args: "nak " + receiptExample, misspelt: exitError, words: "(4"},
	{args: "term " + receiptExample, misspelt: exitError, words: "(4"},
	{args: "extend " + receiptExample, misspelt: exitError, words: "(4"},
	{
		args:     "get jbos " + someID,
		misspelt: exitEmpty,
		words:    "no item has this id: queue jbos is not in use: pq ls lists those that are",
	},
	{
		args:     "trail jbos " + someID,
		misspelt: exitEmpty,
		words:    "no item has this id: queue jbos is not in use: pq ls lists those that are",
	},
	{
		args:     "rank jbos " + someID,
		misspelt: exitEmpty,
		words:    "no item has this id: queue jbos is not in use: pq ls lists those that are",
	},
	{
		args:     "mv jbos " + someID + " 3",
		misspelt: exitEmpty,
		words:    "no item has this id: queue jbos is not in use: pq ls lists those that are",
	},
	{
		args:     "rm jbos " + someID,
		misspelt: exitEmpty,
		words:    "no item has this id: queue jbos is not in use: pq ls lists those that are",
	},
	{
		args:     "release jbos " + someID,
		misspelt: exitEmpty,
		words:    "no item has this id: queue jbos is not in use: pq ls lists those that are",
	},
	{args: "items jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "done jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{
		args:     "result jbos " + someID,
		misspelt: exitEmpty,
		words:    "queue jbos is not in use: pq ls lists those that are",
	},
	{args: "busy"},
	{args: "busy jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "dead jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "dead jbos --by cause", words: "queue jbos is not in use: pq ls lists those that are"},
	{
		args:     "get jobs " + someID,
		misspelt: exitEmpty,
		words:    "or it is a dead letter (pq dead jobs prints those)",
	},
	{args: "get jobs x", misspelt: exitError, words: "(400)"},
	{args: "ls"},
	{args: "watch jbos --count 1", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "watch --count 1"},
	{args: "info jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "config jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "config jbos ttl=1h"},
	{
		args:     "pause jbos",
		misspelt: exitError,
		words:    "queue jbos is not in use: pq ls lists those that are",
	},
	{
		args:     "resume jbos",
		misspelt: exitError,
		words:    "queue jbos is not in use: pq ls lists those that are",
	},
	{args: "purge jbos --yes", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "delete jbos --yes", words: "queue jbos is not in use: pq ls lists those that are"},
	{
		args:     "find " + someID,
		misspelt: exitEmpty,
		words:    "no job with this id is in any of",
	},
	{args: "redrive jbos --yes", words: "queue jbos is not in use: pq ls lists those that are"},
	{
		args:     "redrive jbos --error x --yes",
		misspelt: exitEmpty,
		words:    "queue jbos is not in use: pq ls lists those that are",
	},
	{args: "schedule add jbos nightly --cron @daily", misspelt: exitOK, words: ""},
	{args: "schedule rm jbos nightly", misspelt: exitEmpty, words: "no such schedule"},
	{args: "schedule ls jbos", words: "queue jbos is not in use: pq ls lists those that are"},
	{args: "schedule ls", misspelt: -1}, // others make some
	{args: "schedule run jbos nightly", misspelt: exitEmpty, words: "no such schedule"},
	{args: "doctor jbos", misspelt: -1}, // TestDoctorOfAHealthySystem
	{args: "export jbos", misspelt: -1}, // TestExportOfDeadLettersAndNothing
}

// failsEverywhere runs every command, and checks that its error is one sentence with these words.
func (c *cli) failsEverywhere(words string, flags ...string) {
	c.t.Helper()
	for _, command := range everyCommand {
		args := strings.Fields(command.args)
		args = append(append(args[:1:1], flags...), args[1:]...)

		stdout, stderr, code := c.run("x\n", args...)
		if args[0] == "doctor" {
			if code != exitError || !strings.Contains(stdout, "FAIL") {
				c.t.Errorf("pq %s: exit code %d, %q", command.args, code, stdout)
			}
			continue
		}

		first, report, _ := strings.Cut(stderr, "\n")
		if code != exitError || stdout != "" || !strings.HasPrefix(first, "pq: ") ||
			strings.Count(first, words) != 1 {
			c.t.Errorf("pq %s: exit code %d, %q, %q; want words %q", command.args, code, stdout,
				stderr, words)
		}

		if report != "" && !strings.HasPrefix(report, "pq: lines ") { // of push --lines
			c.t.Errorf("pq %s: more than a sentence: %q", command.args, stderr)
		}
	}
}

// A group of commands and a page of help do nothing by themselves, and refuse what they do not
// know.
func TestUnknownCommands(t *testing.T) {
	c := &cli{t: t, server: "nats://127.0.0.1:1"}
	root, _ := newRoot()

	for _, cmd := range append(root.Commands(), root) {
		if name := cmd.Name(); cmd.HasSubCommands() || name == "connection" {
			args := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "pq"))
			c.fails(exitUsage, `unknown command "typo"`, append(args, "typo", "jobs", "x")...)
			if c.ok("", append(args, "--help")...) != c.ok("",
				append([]string{"help"}, args...)...) {
				t.Errorf("pq %s has two pages of help", name)
			}
		}
	}

	root.SuggestionsMinimumDistance = 2 // as cobra has it
	names := []string{"list", "move", "pub", "schedules"}

	for _, cmd := range root.Commands() {
		names = append(names, cmd.SuggestFor...)
	}

	for _, name := range names {
		list := root.SuggestionsFor(name)
		if slices.Sort(list); len(list) == 0 ||
			len(list) > len(slices.Compact(slices.Clone(list))) {
			t.Errorf("%s: did you mean %q", name, list)
		}
	}

	// Never what does more than was asked for.
	for name, want := range map[string][]string{
		"destroy":      {"delete"},
		"remove":       {"rm"},
		"clear":        {"purge"},
		"truncate":     {"purge"},
		"dlq":          {"dead", "ls"},
		"dead-letters": {"dead"},
		"failed":       {"dead"},
	} {
		got := root.SuggestionsFor(name)

		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: did you mean %q, want %q", name, got, want)
		}
	}
	c.fails(exitUsage, "want one of add, ls, pause, resume, rm, run", "schedule")

	c.ok("", "connection")
}

// Each command is in everyCommand, unless it asks no bridge.
func TestEveryCommandIsTried(t *testing.T) {
	tried := []string{"completion", "help", "connection", "version"} // these ask nobody
	// Which goes on, and says it on its pages.
	tried = append(tried, "dashboard")
	// Which has to read an export first: TestImportOfBadExports.
	tried = append(tried, "import")

	for _, command := range everyCommand {
		tried = append(tried, strings.Fields(command.args)[0])
	}

	root, _ := newRoot()
	for _, cmd := range root.Commands() {
		if !slices.Contains(tried, cmd.Name()) {
			t.Errorf("pq %s is not among everyCommand", cmd.Name())
		}
	}
}

// Without a server, a login or a bridge, each command says what to do.
func TestEveryCommandThatReachesNobody(t *testing.T) {
	t.Parallel()

	away := &cli{t: t, server: "nats://127.0.0.1:1"}
	away.failsEverywhere("cannot connect to NATS at nats://127.0.0.1:1: no server answers there: " +
		"start one with pqbridge -dev, or name another with --server")

	closed := newNATS(t, func(o *server.Options) { o.Username, o.Password = "me", "secret" })
	closed.failsEverywhere("Authorization Violation: look at the login (pq help connection)",
		"--user", "me", "--password", "wrong")
	newNATS(t, nil).failsEverywhere("is pqbridge running? pq doctor looks for the reason")
}

// Without a permission that it needs, each command names the permission.
func TestEveryCommandWithoutPermission(t *testing.T) {
	t.Parallel()

	c := newCLIWith(t, map[string]*server.Permissions{"me": publish(nil, []string{"pq.>"})})
	for _, command := range everyCommand {
		args := strings.Fields(command.args)
		// TestDoctorSeesPermissions; pq bench counts what fails.
		if args[0] == "doctor" || args[0] == "bench" {
			continue
		}

		args = append(append(args[:1:1], "--user", "me", "--password", "me"), args[1:]...)
		_, stderr, code := c.run("x\n", args...)
		if code != exitError || !strings.Contains(stderr, "ermissions") ||
			!strings.Contains(stderr, "give this user the permission, or log in as another") {
			t.Errorf("pq %s: exit code %d, %q", command.args, code, stderr)
		}
	}
}

// Each command whose queue is not in use says so, in one line.
func TestEveryCommandWithAMisspeltName(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "x")
	var commands sync.WaitGroup
	defer commands.Wait()

	for i, command := range everyCommand {
		if command.misspelt < 0 {
			continue
		}
		commands.Go(func() {
			// Some commands make the queue, so each has another one.
			unused := strings.NewReplacer("jbos",
				"jobs"+string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[i]))
			args, words := unused.Replace(command.args), unused.Replace(command.words)

			_, stderr, code := c.run("x\n", strings.Fields(args)...)
			if code != command.misspelt || !strings.Contains(stderr, words) ||
				strings.Count(stderr, "\n") > 1 || (words == "") != (stderr == "") {
				t.Errorf("pq %s: exit code %d, %q; want %d and words %q", args, code, stderr,
					command.misspelt, words)
			}
		})
	}
}
