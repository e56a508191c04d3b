package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/load"
	"github.com/pqbridge/pqbridge/subjects"
)

// Values are kept byte for byte.
func TestQueues(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "later", "--priority", "5")
	c.ok("", "push", "jobs", "first", "-p", "-5")
	c.ok("from stdin", "push", "jobs", "-")
	c.ok("", "push", "jobs", "newest", "--priority", "5")

	c.prints("4\n", "len", "jobs")
	c.prints("first", "peek", "jobs")
	c.prints("newest", "peek", "jobs", "--max")
	c.prints("first", "pop", "jobs")
	c.prints("newest", "pop", "jobs", "--max")
	c.prints("from stdin\nlater\n", "pop", "jobs", "--all")
	c.prints("0\n", "len", "jobs")

	c.ok("a\nb\nc\n", "push", "--fifo", "mail", "--lines")
	c.prints("3\n", "len", "-q", "mail")
	c.prints("a", "peek", "-q", "mail")
	c.prints("a\nb\n", "pop", "-q", "mail", "-n", "2")
	c.prints("c\n", "pop", "-q", "mail", "-n", "2")

	c.fails(exitEmpty, "empty", "pop", "-q", "mail")

	for _, value := range []string{"", "\n", "no newline", "\x00\xff\r\n"} {
		c.ok(value, "push", "bytes", "-")
		c.prints(value, "pop", "bytes")
	}
}

// An empty value is pushed if it is asked for.
func TestEmptyInput(t *testing.T) {
	c, _ := newCLI(t)
	c.fails(exitUsage, "pq: standard input is empty: to push an empty item, give - as VALUE\n",
		"push", "jobs")

	c.prints("0\n", "len", "jobs")
	c.ok("", "push", "jobs", "")
	c.prints("1\n", "len", "jobs")
}

// What --json prints says all that is known, and nothing else.
func TestJSON(t *testing.T) {
	c, _ := newCLI(t)
	for flag, priority := range map[string]string{"--fifo=false": `,"priority":0`, "--fifo": ""} {
		once := []string{"push", "keys", "text", flag, "-H", "Pq-Unique:key", "--json"}
		first, again := c.ok("", once...), c.ok("", once...)

		want := regexp.MustCompile(`^\{"queue":"keys","id":"[^"]+"` + priority + `\}\n$`)
		if !want.MatchString(first) {
			t.Errorf("%s: got %s, want %v", flag, first, want)
		}

		if want := strings.TrimSuffix(first, "}\n") + `,"duplicate":true}` + "\n"; again != want {
			t.Errorf("%s: the duplicate is %s, want %s", flag, again, want)
		}
	}

	id := strings.TrimSpace(c.ok("", "push", "jobs", "text", "-p", "7", "-H", "Trace: abc", "-H",
		"Trace:def"))
	c.ok("\xff\x00", "push", "jobs", "-p", "8")

	text := c.item("pop", "jobs")
	if text.ID != id || text.Queue != "jobs" || *text.Priority != 7 || *text.Value != "text" ||
		text.Base64 != nil || text.PushedAt == "" ||
		!slices.Equal(text.Headers["Trace"], []string{"abc", "def"}) || len(text.Headers) != 1 {
		t.Errorf("popped %+v: want %s with the value as text, its headers and the time", text, id)
	}

	if bytes := c.item("peek", "jobs"); bytes.Value != nil || string(bytes.Base64) != "\xff\x00" {
		t.Errorf("peeked at %+v: want the value as base64", bytes)
	}

	c.prints(`{"queue":"jobs","len":1}`+"\n", "len", "jobs", "--json")
}

// A mistake in the command line gets exit code 2 and a text that says what pq wants instead.
func TestMistakesInTheCommandLine(t *testing.T) {
	c := &cli{t: t, server: "nats://127.0.0.1:1"}
	c.fails(exitUsage, "one line", "push", "jobs", "x", "-H", "Trace:a\nb")

	for _, m := range []struct{ words, args string }{
		{"Did you mean this?\n\tpush\n", "psuh jobs"},
		{"Did you mean this?\n\tinfo\n", "status"},
		{"Did you mean this?\n\trm\n", "remove jobs"},
		{"Did you mean this?\n\tpush\n", "publish jobs x"},
		{"Did you mean this?\n\tredrive\n", "retry jobs-dead"},
		{"Did you mean this?\n\tredrive\n", "rerun jobs"},
		{"Did you mean this?\n\tls\n", "queues"},
		{"Did you mean this?\n\tschedule\n", "cron ls"},
		{"resume\n", "unpause jobs"},
		{`no help on "psuh"`, "help psuh"},
		{`unknown command "sh": want one of bash, fish`, "completion sh"},
		{"QUEUE is missing: want pq push QUEUE [VALUE|-]\nSee pq push --help.", "push"},
		{"too many arguments: want pq pop QUEUE\n", "pop a b"},
		{"unknown flag", "pop jobs --maximum"},
		{"no priorities", "push --fifo mail x --priority 0"},
		{"leave out VALUE", "push jobs x --lines"},
		{"at least 1", "pop jobs -n 0"},
		{"bad queue name", "len jobs.eu"},
		{"one end", "pop --fifo mail --max"},
		{"PRIORITY is missing", "mv jobs id"},
		{"- stands for the ids in standard input: leave out the others", "rm jobs - id"},
		{"--limit is 0: want at least 1", "items jobs --limit 0"},
		{"leave out --max and --error", "redrive jobs-dead id --max 5"},
		{"add --yes", "redrive jobs-dead --error x"},
		{`--by is "error": want cause`, "dead --by error"},
		{"--by counts all dead letters: leave out --by, or", "dead --by cause --all"},
		{"want NAME=VALUE", "config jobs ack_wait"},
		{`unknown setting "ack"`, "config jobs ack=1m"},
		{
			`ack_wait: "soon": want a duration with a unit such as "30s" or "24h"`,
			"config jobs ack_wait=soon",
		},
		{"above zero", "pause jobs --for 0s"},
		{"--max is 0: want at least 1", "redrive jobs --max 0 --yes"},
		{"bad prefix", "len jobs --prefix a..b"},
		{"--timeout", "len jobs --timeout 0s"},
		{
			`--wait is "soon": want a duration with a unit, such as 30s, 24h or 7d`,
			"lease jobs --wait soon",
		},
		{`--rate is "x": want a decimal number, such as 0.5`, "bench jobs --rate x"},
		{
			`--drop-on is "x": want decimal numbers with commas between`,
			"work jobs --drop-on x -- true",
		},
		{`--json is "maybe": want true or false`, "ls --json=maybe"},
		{"an argument that begins with - must come after --", "mv jobs id -1 -2"},
		{"leave out one", "busy --limit 5 --all"},
		{"--ack-wait is 1ms: want 100ms to 12h0m0s", "lease jobs --ack-wait 1ms"},
		{`--holder: a holder "xxx`, "lease jobs --holder " + strings.Repeat("x", 129)},
		{
			`--holder: a holder "\xff\xfe": want at most 128 bytes of UTF-8`,
			"lease jobs --holder \xff\xfe",
		},
		{"--delay is -1s: want 0s to", "push jobs x --delay -1s"},
		{"--ttl is 1ms: want 1s to", "push jobs x --ttl 1ms"},
		{"--group and --header Pq-Group say the same", "push jobs x --group a --header Pq-Group:b"},
		{"leave out one", "nak " + receiptExample + " --snooze --reason x"},
		{"want a queue and a command: pq work QUEUE -- COMMAND", "work jobs true"},
		{"exit codes from 1 to 255", "work jobs --drop-on 0 -- true"},
		{"--job-timeout is -1s: want a duration, such as " +
			"30s", "work jobs --job-timeout -1s -- true"},
		{"a header cannot set the priority: use --priority", "push jobs x -H Pq-Priority:7"},
		{
			"--delay and --header Pq-Delay say the same thing: leave out one",
			"push jobs x --delay 1s -H Pq-Delay:1s",
		},
		{"--count is 0: want at least 1", "watch --count 0"},
		{
			"cannot run the command no-such-command: executable file not found",
			"work jobs -- no-such-command",
		},
		{"name a queue, or leave out --fifo", "doctor --fifo"},
		{"the file with the nkey", "len jobs --nkey /no/such/file"},
		{"the login: nats: open /no/such/file: no such file", "len jobs --creds /no/such/file"},
		{
			`the address "http://127.0.0.1:1": want the URL of a NATS server`,
			"len jobs --server http://127.0.0.1:1",
		},
		{
			`the address "nats://127.0.0.1:70000": want the URL`,
			"len jobs --server nats://127.0.0.1:1,nats://127.0.0.1:70000",
		},
		{"together", "len jobs --tlscert file"},
		{`mode "pull"`, "bench try pull"},
		{"--size", "bench try --size big"},
		{"size is 1: want at least 8 bytes", "bench try --size 1"},
		{"batch is 0: want 1 to 1000", "bench try --batch 0"},
		{"must be bench or begin with bench-", "bench try pop"},
		{"must be bench or begin with bench-", "bench benches pop"},
		{"takes no batch", "bench try work --batch 2"},
		{"queues is 0: want 1 to 1000000", "bench try --queues 0"},
		{"a Worker works on one", "bench try work --queues 2"},
		{"at least one client each", "bench try --clients 1 --connections 2"},
		{"priorities is 0", "bench try --priorities 0"},
		{"rate is -1", "bench try --rate -1"},
		{"one of them above 0", "bench try --duration 0"},
	} {
		stdout, stderr, code := c.run("", strings.Fields(m.args)...)
		if code != exitUsage || !strings.Contains(stderr, m.words) || stdout != "" {
			t.Errorf("pq %s: exit code %d, %q and %q, want words %q", m.args, code, stdout, stderr,
				m.words)
		}

		for _, leak := range []string{
			"strconv", "time: ", "json: ", "tuple", `\"`, "invalid argument", "bad options: bad",
		} {
			if strings.Contains(stderr, leak) {
				t.Errorf("pq %s says %q: %s", m.args, leak, stderr)
			}
		}
	}
}

// A pop with --wait waits for an item, longer than one request does.
func TestPopWaits(t *testing.T) {
	c, r := newRelay(t)
	c.findsNothing("pop", "jobs", "--wait", "20ms")
	c.findsNothing("pop", "--fifo", "mail", "--wait", "20ms")

	c.ok("", "push", "jobs", "a") // of which pq does not know yet
	printed := make(chan string, 1)

	go func() {
		stdout, stderr, _ := c.run("", "pop", "jobs", "--wait", "1h", "-n", "2", "--prefix",
			"relay")
		printed <- stdout + stderr
	}()

	empty := &subjects.Error{Code: subjects.CodeNotFound, Text: client.ErrEmpty.Error()}
	for _, later := range []string{"b", "c"} {
		m := r.next()
		if !strings.Contains(string(m.Data), `"expires":"1s"`) {
			t.Errorf("it waits for %s", m.Data)
		}

		r.respond(m, &nats.Msg{Header: empty.Headers()})
		r.forward(r.next())
		m = r.next() // the acknowledgement, for which it waits longer than for an item
		c.ok("", "push", "jobs", later)
		r.forward(m)
	}
	if got := <-printed; got != "a\nb\n" {
		t.Errorf("printed %q", got)
	}
}

// What the bridge refuses gets exit code 1 and its own words, and an empty queue exit code 3.
func TestErrors(t *testing.T) {
	c, _ := newCLI(t)
	c.fails(exitEmpty, "the queue is empty", "pop", "jobs")
	c.fails(exitEmpty, "the queue is empty", "peek", "jobs", "--max")
	c.fails(exitError, "no bridge is listening on other.jobs.push: is pqbridge running?", "push",
		"jobs", "x", "--prefix", "other")
	c.fails(exitError, "no bridge is listening on other.jobs.info: is pqbridge running?", "work",
		"jobs", "--prefix", "other", "--", "true")

	for words, args := range map[string]string{
		"Pq-Unknown": "push jobs x --header Pq-Unknown:1",
		"want an integer from 1 to 100, beside Pq-Group": "push jobs x --weight 3",
		"state: ": "items jobs --state gone",
	} {
		c.fails(exitError, words, strings.Fields(args)...)
	}
	c.fails(exitError, "takes 1048576 bytes at most", "push", "jobs", strings.Repeat("x", 2<<20))

	silent, _ := newSilent(t)
	silent.fails(exitError, "within 50ms", "len", "jobs", "--timeout", "50ms")
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// pq bench prints rates and latencies, as a table of 80 columns or as JSON.
func TestBench(t *testing.T) {
	c, _ := newCLI(t)
	table := c.ok("", "bench", "mixture", "--count", "100", "--clients", "4", "--connections", "2")

	for _, want := range []string{"mixed of queue mixture", "push", "lease", "p99.9"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	if wide := regexp.MustCompile(`.{81,}`).FindString(table); wide != "" {
		t.Errorf("%d columns: %s", len(wide), wide)
	}

	for _, args := range [][]string{{"push", "--count", "50", "--size", "200"}, {"pop"}} {
		var report load.Report
		decode(t, c.ok("", append([]string{"bench", "bench-try", "--json"}, args...)...), &report)
		if len(report.Operations) != 1 || report.Operations[0].Count != 50 ||
			report.RanDry != (args[0] == "pop") {
			t.Errorf("%q: %+v", args, report)
		}
	}

	c.ok("", "push", "try", "precious")
	c.fails(exitError, "did not push", "bench", "try")
}
