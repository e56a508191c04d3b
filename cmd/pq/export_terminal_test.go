//go:build unix

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A terminal shows how far an export is, which goes elsewhere, and how far an import is. The line
// is gone once there is something else to say.
func TestProgressOfExports(t *testing.T) {
	c, r := newRelay(t)
	c.ok("", "push", "jobs", "x")
	next := someID
	page := subjects.ItemsPage{
		Items: []subjects.StoredItem{{ID: someID, State: subjects.StateReady, Value: []byte("x")}},
		Next:  &next, Scanned: 1,
	}

	term := newTerminal(t, 100)
	var piped harness.Transcript
	p := term.start(c, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.SysProcAttr.Ctty = &piped, 2
	}, "export", "jobs", "--prefix", "relay")
	for page.Next != nil {
		m := r.next()
		if !strings.HasSuffix(m.Subject, ".items") {
			r.forward(m)
			continue
		}
		if strings.Contains(term.output.String(), "exported ") {
			page.Next = nil
		}
		r.respond(m, &nats.Msg{Data: page.Encode()})
	}
	p.ends(exitOK)
	term.sees("\rpq: exported ")

	head, _, _ := strings.Cut(piped.String(), "\n")
	term = newTerminal(t, 100)
	p = term.start(c, nil, "import", "new")
	p.write(head + "\n")
	n := 0
	testenv.Eventually(t, func() error {
		n++
		p.write(fmt.Sprintf(`{"id":"%d","state":"ready","priority":1,"value":"x"}`+"\n", n))
		if !strings.Contains(term.output.String(), "imported ") {
			return errors.New("no progress is shown")
		}
		return nil
	})
	must(t, p.stdin.Close())
	p.ends(exitError)
	term.sees(fmt.Sprintf("\rpq: line %d is missing", n+2))
}
