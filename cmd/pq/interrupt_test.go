package main

import (
	"net"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

const finishing = "finishing what is under way"

// A signal during pq pop --all loses no item: those it has got are printed or go back. The signal
// comes twice, as timeout(1) sends it.
func TestSignalDoesNotLoseTheItemInFlight(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			c, r := newRelay(t)
			c.ok("a\nb\nc\n", "push", "jobs", "--lines")

			p := c.start(nil, "pop", "jobs", "--all", "--prefix", "relay")
			first := r.next()
			p.signal(s)
			p.signal(s)
			p.sees(&p.stderr, finishing)
			r.forward(first)

			for range 3 { // one is acknowledged, two go back
				r.forward(r.next())
			}

			p.ends(exitSignal + int(s))
			p.printed("a\n")
			if len(r.requests) > 0 {
				t.Error("pq went on popping")
			}

			c.prints("b\nc\n", "pop", "jobs", "--all")
		})
	}
}

// A command that finishes its work in spite of a signal succeeds: a script that saw
// a failure would discard the item.
func TestSignalDuringTheOnlyPop(t *testing.T) {
	c, r := newRelay(t)
	c.ok("", "push", "jobs", "a")
	p := c.start(nil, "pop", "jobs", "--prefix", "relay")
	m := r.next()
	p.signal(syscall.SIGTERM)
	p.sees(&p.stderr, finishing)
	r.forward(m)
	r.forward(r.next()) // the acknowledgement
	p.ends(exitOK)
	p.printed("a")
}

// A second signal more than a second after the first kills pq.
func TestAnotherSignalEndsAtOnce(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "pop", "jobs", "--prefix", "relay")
	r.next()
	p.signal(syscall.SIGINT)
	p.sees(&p.stderr, finishing)
	p.signalsUntilEnd(syscall.SIGINT)

	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v", p.cmd.ProcessState)
	}
}

// A signal ends a request that changes nothing at once.
func TestSignalEndsReadsAtOnce(t *testing.T) {
	c, r := newRelay(t)
	for _, command := range []string{"peek", "len"} {
		p := c.start(nil, command, "jobs", "--prefix", "relay")
		r.next()
		p.signal(syscall.SIGTERM)
		p.ends(exitSignal + int(syscall.SIGTERM))
		p.says("stopped by a signal (terminated)")
	}
}

// A signal that is ignored when pq starts stays ignored.
func TestNohup(t *testing.T) {
	c, r := newRelay(t)
	c.ok("a\nb\n", "push", "jobs", "--lines")
	p := c.start(shell("trap '' HUP; ", ""), "pop", "jobs", "--all", "--prefix", "relay")
	first := r.next()
	p.signal(syscall.SIGHUP)
	r.forward(first)
	r.forward(r.next())
	r.forward(r.next())
	p.ends(exitOK)
	p.printed("a\nb\n")
}

// A signal ends an attempt to connect.
func TestSignalWhileConnecting(t *testing.T) {
	t.Parallel()

	c, silent := newSilent(t)
	p := c.start(nil, "pop", "jobs")
	conn, err := silent.Accept()
	must(t, err)

	defer conn.Close()
	p.signal(syscall.SIGTERM)
	p.ends(exitSignal + int(syscall.SIGTERM))
}

// newSilent has a server that lets the system accept connections, and says nothing.
func newSilent(t *testing.T) (*cli, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })

	return &cli{t: t, server: "nats://" + l.Addr().String()}, l
}

// What an older bridge does not know may be why it refuses a request, and pq says so.
func TestRefusedByAnOlderBridge(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "lease", "jobs", "--prefix", "relay")

	text := `bad options: unknown member "holder": ` +
		"want a JSON object with members of ack_wait, batch"
	failure := &subjects.Error{Code: subjects.CodeBadRequest, Text: text}
	r.respond(r.next(), &nats.Msg{Header: failure.Headers()})

	p.ends(exitError)
	p.says(text + " (400); if this pq is newer than the bridge, that is why: pq doctor compares " +
		"their versions")
}

// A pop whose outcome is unknown says that items may be leased.
func TestPopOfUnknownOutcome(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "pop", "jobs", "--prefix", "relay")
	r.fail(r.next(), true)
	p.ends(exitError)
	p.says("made up (503): items may stay leased until their leases end")
}
