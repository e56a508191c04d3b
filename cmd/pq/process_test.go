package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/cmd/internal/sigonce"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// process is pq in a process of its own.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr harness.Transcript
	ended          chan struct{}
}

// start runs pq. change, if not nil, changes the command first.
func (c *cli) start(change func(*exec.Cmd), args ...string) *process {
	c.t.Helper()
	p := &process{t: c.t, ended: make(chan struct{})}
	p.cmd = harness.Command(os.Args[0], append([]string{"--server", c.server}, args...)...)
	p.cmd.Env = append(os.Environ(), mainVariable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	stdin, err := p.cmd.StdinPipe()
	must(c.t, err)

	p.stdin = stdin
	if change != nil {
		change(p.cmd)
	}

	// A child ignores the signals that its parent ignores.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(heard)
	must(c.t, p.cmd.Start())

	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the tests look at ProcessState
	}()

	c.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
	})

	return p
}

// attributes returns the attributes of a command that has not been started.
func attributes(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

// startPiped is start with a pipe as standard output.
func (c *cli) startPiped(args ...string) (*process, *os.File) {
	c.t.Helper()
	r, w, err := os.Pipe()
	must(c.t, err)

	p := c.start(func(cmd *exec.Cmd) { cmd.Stdout = w }, args...)
	_ = w.Close() // the child has its own
	return p, r
}

// shell starts the command from a shell, with redirections or after other
// commands.
func shell(before, redirection string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		script := before + `exec "$@" ` + redirection
		cmd.Path = "/bin/sh"
		cmd.Args = append([]string{"sh", "-c", script, "sh"}, cmd.Args...)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(s))
}

// signalsUntilEnd repeats a signal until the process has ended: one that comes soon after another
// counts as the same, and one that comes while pq ends because of another kills it.
func (p *process) signalsUntilEnd(s syscall.Signal) {
	p.t.Helper()
	for range 4 {
		time.Sleep(2 * sigonce.Window)
		_ = p.cmd.Process.Signal(s) // fails if it has ended

		select {
		case <-p.ended:
			return
		case <-time.After(testenv.Patience / 4):
		}
	}

	p.t.Fatalf("pq goes on: %s", p.stderr.String())
}

// write adds to standard input.
func (p *process) write(text string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, text)
	must(p.t, err)
}

// sees waits until the process has written words to a stream.
func (p *process) sees(stream *harness.Transcript, words string) {
	p.t.Helper()
	testenv.Eventually(p.t, func() error {
		if strings.Contains(stream.String(), words) {
			return nil
		}

		select {
		case <-p.ended:
			p.t.Fatalf("pq ended without %q: %v\n%s%s", words, p.cmd.ProcessState,
				p.stdout.String(), p.stderr.String())
		default:
		}

		return errors.New("not written: " + words)
	})
}

// ends waits for the process to exit with a code.
func (p *process) ends(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testenv.Patience):
		p.t.Fatalf("pq does not end\n%s", p.stderr.String())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("pq ended with %v, want exit code %d\n%s", p.cmd.ProcessState, code,
			p.stderr.String())
	}
}

// stop ends pq work, which has nothing under way.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.ends(exitOK)
}

// printed checks standard output.
func (p *process) printed(want string) {
	p.t.Helper()
	if got := p.stdout.String(); got != want {
		p.t.Errorf("printed %q, want %q", got, want)
	}
}

// says checks standard error.
func (p *process) says(words ...string) {
	p.t.Helper()
	for _, w := range words {
		if !strings.Contains(p.stderr.String(), w) {
			p.t.Errorf("standard error %q: want words %q", p.stderr.String(), w)
		}
	}
}

// relay stands between pq --prefix relay and a bridge: the test decides what becomes of each
// request.
type relay struct {
	t        *testing.T
	env      *testenv.Env
	requests chan *nats.Msg
}

func newRelay(t *testing.T) (*cli, *relay) {
	t.Helper()
	c, env := newCLI(t)
	r := &relay{t: t, env: env, requests: make(chan *nats.Msg, 100)}
	_, err := env.Conn.ChanSubscribe("relay.>", r.requests)
	must(t, err)
	must(t, env.Conn.Flush())

	return c, r
}

// next waits for a request.
func (r *relay) next() *nats.Msg {
	r.t.Helper()
	select {
	case m := <-r.requests:
		return m
	case <-time.After(testenv.Patience):
		r.t.Fatal("there is no request")
		return nil
	}
}

// forward passes a request to the bridge, which replies to pq.
func (r *relay) forward(m *nats.Msg) {
	r.t.Helper()
	subject := subjects.DefaultPriorityPrefix + strings.TrimPrefix(m.Subject, "relay")
	must(r.t, r.env.Conn.PublishMsg(
		&nats.Msg{Subject: subject, Reply: m.Reply, Header: m.Header, Data: m.Data}))
	must(r.t, r.env.Conn.Flush())
}

// fail answers a request with an error.
func (r *relay) fail(m *nats.Msg, unknown bool) {
	r.t.Helper()
	failure := &subjects.Error{Code: subjects.CodeUnavailable, Unknown: unknown, Text: "made up"}
	r.respond(m, &nats.Msg{Header: failure.Headers()})
}

func (r *relay) respond(m, reply *nats.Msg) {
	r.t.Helper()
	must(r.t, m.RespondMsg(reply))
	must(r.t, r.env.Conn.Flush())
}
