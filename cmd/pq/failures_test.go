package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// an id, as a bridge makes them.
const someID = "FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"

// everyCommand has a command line for each thing that pq asks a bridge for.
var everyCommand = []struct {
	args string
	// since is the endpoint that came with this request, "" if the first bridge had it.
	since string
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
	{args: "work jbos -- true", since: "info", misspelt: -1}, // it waits for items
	{args: "lease jbos", since: "ack", misspelt: exitEmpty, words: "the queue is empty"},
	{args: "ack " + receiptExample, since: "ack", misspelt: exitError, words: "(4"},
	{args: "nak " + receiptExample, since: "ack", misspelt: exitError, words: "(4"},
	{args: "term " + receiptExample, since: "ack", misspelt: exitError, words: "(4"},
	{args: "extend " + receiptExample, since: "ack", misspelt: exitError, words: "(4"},
	{args: "get jbos " + someID, since: "get", misspelt: exitEmpty, words: "no item has this id: no queue jbos is in use: did you mean jobs?"},
	{args: "rank jbos " + someID, since: "rank", misspelt: exitEmpty, words: "no item has this id: no queue jbos is in use: did you mean jobs?"},
	{args: "mv jbos " + someID + " 3", since: "move", misspelt: exitEmpty, words: "no item has this id: no queue jbos is in use: did you mean jobs?"},
	{args: "rm jbos " + someID, since: "remove", misspelt: exitEmpty, words: "no item has this id: no queue jbos is in use: did you mean jobs?"},
	{args: "release jbos " + someID, since: "release", misspelt: exitEmpty, words: "no item has this id: no queue jbos is in use: did you mean jobs?"},
	{args: "items jbos", since: "items", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "peek jbos -n 2", since: "items", misspelt: exitEmpty, words: "the queue is empty"},
	{args: "dead jbos", since: "items", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "get jobs " + someID, since: "get", misspelt: exitEmpty, words: "no item has this id: it was popped, removed or moved, or the id is misspelt"},
	{args: "get jobs x", since: "get", misspelt: exitError, words: "(400)"},
	{args: "ls", since: "list"},
	{args: "watch jbos --count 1", since: "info"},
	{args: "watch --count 1", since: "list"},
	{args: "info jbos", since: "info", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "consumers jbos", since: "info", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "config jbos", since: "info", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "config jbos ttl=1h", since: "config"},
	{args: "pause jbos", since: "config"},
	{args: "resume jbos", since: "config"},
	{args: "purge jbos --yes", since: "purge", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "redrive jbos --yes", since: "redrive", words: "no queue jbos is in use: did you mean jobs?"},
	{args: "schedule add jbos nightly --cron @daily", since: "schedule", misspelt: exitOK, words: ""},
	{args: "schedule rm jbos nightly", since: "unschedule", misspelt: exitEmpty, words: "no such schedule"},
	{args: "schedule ls jbos", since: "schedules", words: "no schedules"},
	{args: "schedule run jbos nightly", since: "schedule", misspelt: exitEmpty, words: "no such schedule"},
	{args: "doctor jbos"},
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
		if code != exitError || stdout != "" || !strings.HasPrefix(first, "pq: ") || strings.Count(first, words) != 1 {
			c.t.Errorf("pq %s: exit code %d, %q, %q; want words %q", command.args, code, stdout, stderr, words)
		}
		if report != "" && !strings.HasPrefix(report, "pq: lines ") { // of push --lines
			c.t.Errorf("pq %s: more than a sentence: %q", command.args, stderr)
		}
	}
}

// A group of commands and a page of help do nothing by themselves, and refuse what they do not know.
func TestUnknownCommands(t *testing.T) {
	c := &cli{t: t, server: "nats://127.0.0.1:1"}
	root, _ := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		if name := cmd.Name(); cmd.HasSubCommands() || name == "connection" {
			args := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "pq"))
			c.fails(exitUsage, `unknown command "typo"`, append(args, "typo", "jobs", "x")...)
			if c.ok("", append(args, "--help")...) != c.ok("", append([]string{"help"}, args...)...) {
				t.Errorf("pq %s has two pages of help", name)
			}
		}
	}
	c.fails(exitUsage, "want one of add, ls, pause, resume, rm, run", "schedule")
	c.ok("", "connection")
}

func TestEveryCommandIsTried(t *testing.T) {
	tried := []string{"completion", "help", "connection"} // these ask nobody
	tried = append(tried, "dashboard")                    // which goes on, and says it on its pages
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

func TestEveryCommandWithoutPermission(t *testing.T) {
	t.Parallel()
	c := newCLIWith(t, map[string]*server.Permissions{"me": publish(nil, []string{"pq.>"})})
	for _, command := range everyCommand {
		args := strings.Fields(command.args)
		if args[0] == "doctor" || args[0] == "bench" { // TestDoctorSeesPermissions; pq bench counts what fails
			continue
		}
		args = append(append(args[:1:1], "--user", "me", "--password", "me"), args[1:]...)
		_, stderr, code := c.run("x\n", args...)
		if code != exitError || !strings.Contains(stderr, "ermissions") || !strings.Contains(stderr, "give this user the permission, or log in as another") {
			t.Errorf("pq %s: exit code %d, %q", command.args, code, stderr)
		}
	}
}

// newOlderBridge stands for a bridge that does not have these endpoints. It answers every request
// as bridges answer those that they do not know.
func newOlderBridge(t *testing.T, missing ...string) *cli {
	t.Helper()
	env := testenv.New(t, testenv.Options{Stopped: true})
	env.NATS.Start()
	info := micro.Info{ServiceIdentity: micro.ServiceIdentity{Name: "pqbridge", ID: "OLD", Version: "0.1.0"}}
	for _, e := range env.Grammar.Endpoints() {
		if !slices.Contains(missing, e.Name) {
			info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: e.Name, Subject: e.Subject, QueueGroup: "pqbridge"})
		}
	}
	answer, err := json.Marshal(info)
	must(t, err)
	nc := env.Connect()
	refusal := &subjects.Error{Code: subjects.CodeBadRequest, Text: "unknown verb"}
	for subject, reply := range map[string]*nats.Msg{
		"$SRV.INFO.pqbridge": {Data: answer}, "$SRV.STATS.pqbridge": {Data: answer},
		"pq.>": {Header: refusal.Headers()}, "q.>": {Header: refusal.Headers()},
	} {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.RespondMsg(reply) })
		must(t, err)
	}
	must(t, nc.Flush())
	return &cli{t: t, server: env.NATS.URL()}
}

func TestEveryCommandWithAnOlderBridge(t *testing.T) {
	t.Parallel()
	missing := map[string]string{} // subjects by endpoints
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	must(t, err)
	for _, command := range everyCommand {
		for _, e := range grammar.Endpoints() {
			if e.Name == command.since {
				missing[e.Name] = e.Subject
			}
		}
	}
	c := newOlderBridge(t, slices.Collect(maps.Keys(missing))...)
	var commands sync.WaitGroup // each waits whether another bridge answers
	defer commands.Wait()
	for _, command := range everyCommand {
		if subject := missing[command.since]; subject != "" {
			commands.Go(func() {
				testenv.Eventually(t, func() error { // a busy machine may answer the question for bridges too late
					_, stderr, code := c.run("", strings.Fields(command.args)...)
					if code != exitError || !strings.HasSuffix(stderr, "a bridge does not know "+subject+" yet (version 0.1.0, id OLD): upgrade it\n") {
						return fmt.Errorf("pq %s: exit code %d and %q", command.args, code, stderr)
					}
					return nil
				})
			})
		}
	}
}

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
			unused := strings.NewReplacer("jbos", "jobs"+string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[i]))
			args, words := unused.Replace(command.args), unused.Replace(command.words)
			_, stderr, code := c.run("x\n", strings.Fields(args)...)
			if code != command.misspelt || !strings.Contains(stderr, words) || strings.Count(stderr, "\n") > 1 || (words == "") != (stderr == "") {
				t.Errorf("pq %s: exit code %d, %q; want %d and words %q", args, code, stderr, command.misspelt, words)
			}
		})
	}
}
