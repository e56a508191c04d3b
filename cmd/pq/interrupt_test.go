package main

import (
	"net"
	"syscall"
	"testing"
)

const finishing = "finishing what is under way"

// TestSignalDoesNotLoseTheItemInFlight stops pq pop --all during a pop. The signal
// comes twice, as timeout(1) sends it. What it has got by then is printed or goes back.
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

func TestAnotherSignalEndsAtOnce(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "pop", "jobs", "--prefix", "relay")
	r.next()
	p.signal(syscall.SIGINT)
	p.sees(&p.stderr, finishing)
	p.signalsUntilEnd(syscall.SIGINT)
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v", p.cmd.ProcessState)
	}
}

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

// TestSignalWhileConnecting: a signal ends an attempt to connect.
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

func TestPopOfUnknownOutcome(t *testing.T) {
	c, r := newRelay(t)
	p := c.start(nil, "pop", "jobs", "--prefix", "relay")
	r.fail(r.next(), true)
	p.ends(exitError)
	p.says("made up (503): items may be leased, and come back when that is over")
}
