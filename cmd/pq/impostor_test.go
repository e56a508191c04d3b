package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// attack is commands to terminals: a title, an emptied screen, a false line, and a text that runs
// backwards.
const attack = "evil\x1b]0;pwned\x07\x1b[2J\u009b2J\rok    store\u202e"

// isHarmless checks that the output has no commands for a terminal.
func isHarmless(t *testing.T, command, printed string) {
	t.Helper()
	for _, r := range printed {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("pq %s printed %q, which has %q", command, printed, r)
			return
		}
	}
}

// impostor answers everything in place of a bridge, from now on.
func impostor(t *testing.T, nc *nats.Conn, grammar subjects.Grammar) {
	t.Helper()
	answer := func(m *nats.Msg) {
		reply := &nats.Msg{Header: nats.Header{
			"Nats-Service-Error": {attack}, "Nats-Service-Error-Code": {"400"},
		}}
		item := map[string]any{
			"id":     attack,
			"state":  attack,
			"reason": attack,
			"holder": attack,
			"value":  []byte(attack),
			"headers": nats.Header{
				"Pq-Dead-Queue":  {attack},
				"Pq-Dead-Reason": {attack},
				"Pq-Dead-Error":  {attack},
			},
		}

		source := map[string]any{"stream": attack, "consumer": attack, "stopped": attack}
		endpoints := []any{
			nil,
			map[string]any{"subject": grammar.Endpoints()[0].Subject, "queue_group": attack},
		}

		bodies := map[string]any{
			"list":  map[string]any{"queues": []any{map[string]any{"queue": attack, "leased": 1}}},
			"items": map[string]any{"items": []any{item}},
			"push":  map[string]any{"stream": attack, "id": attack, "queue": attack},
			"info": map[string]any{
				"queue":     attack,
				"source":    source,
				"consumers": []any{map[string]any{"name": attack}},
			},
			"schedules": map[string]any{
				"schedules": []any{map[string]any{"id": attack, "cron": attack}},
			},
			"redrive": map[string]any{
				"results": []any{map[string]any{"id": attack, "place": attack, "queue": attack}},
			},
			"pqbridge": map[string]any{
				"id":        attack,
				"version":   attack,
				"endpoints": endpoints,
				"metadata": map[string]string{
					"store":     attack,
					"host":      attack,
					"not_ready": attack,
					"jetstream": attack,
				},
				"bridge": map[string]any{"why": attack, "store": attack},
			},
		}

		tokens := strings.Split(m.Subject, ".")
		if body := bodies[tokens[len(tokens)-1]]; body != nil {
			reply = &nats.Msg{}
			reply.Data, _ = json.Marshal(body)
		}

		_ = m.RespondMsg(reply) // some questions want no answer
	}

	for _, subject := range []string{"pq.>", "q.>", "$SRV.>"} {
		if _, err := nc.Subscribe(subject, answer); err != nil {
			t.Fatal(err)
		}
	}
	must(t, nc.Flush())
}

// Whatever answers in place of a bridge may say anything: what pq prints for people has no commands
// to their terminals.
func TestNoAnswerCommandsATerminal(t *testing.T) {
	t.Parallel()

	env := testenv.New(t, testenv.Options{Stopped: true})
	env.NATS.Start()
	c := &cli{t: t, server: env.NATS.URL()}
	impostor(t, env.Connect(), env.Grammar)

	said := 0
	for _, command := range everyCommand {
		if strings.HasPrefix(command.args, "work") {
			continue
		}

		stdout, stderr, _ := c.run("x", strings.Fields(command.args)...)
		if strings.HasPrefix(command.args, "export") {
			stdout = "" // JSON for programs, as with --json
		}
		isHarmless(t, command.args, stdout+stderr)

		said += strings.Count(stdout+stderr, "evil")
	}

	for _, args := range []string{"doctor", "doctor jobs", "__complete info "} {
		stdout, stderr, _ := c.run("", strings.Split(args, " ")...)
		isHarmless(t, args, stdout+stderr)
		said += strings.Count(stdout+stderr, "evil")
	}

	if said < 20 {
		t.Errorf("the impostor was quoted %d times", said)
	}
}

// A service with other prefixes on the same NATS server is none of pq doctor's business, and pq
// info does not count what it did.
func TestTwoServicesOnOneNATS(t *testing.T) {
	c, env := newCLI(t)
	other, err := subjects.New("b", "bf")
	must(t, err)

	env.StartBridge(func(o *bridge.Options) {
		o.Grammar, o.QueueGroup, o.Version = other, "b", "0.0.2"
	}).WaitReady()
	c.ok("", "push", "jobs", "x")

	for range 3 {
		c.ok("", "push", "jobs", "x", "--prefix", "b", "--fifo-prefix", "bf")
	}

	all := c.findings(exitOK)
	all["bridges"].is(t, fine, "1 bridge found")
	c.findings(exitOK, "--prefix", "b", "--fifo-prefix",
		"bf")["bridges"].is(t, fine, "1 bridge found")
	none := c.findings(exitError, "--prefix", "c", "--fifo-prefix", "cf")["bridges"]
	none.is(t, wrong, "serve other prefixes", "--fifo-prefix")

	for range 3 {
		got := c.ok("", "info", "jobs")
		if !strings.Contains(got, "last hour   1 pushed") {
			t.Errorf("printed %s", got)
		}
	}
}
