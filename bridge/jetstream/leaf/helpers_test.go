package leaf_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serverVariable names a nats-server program to test with. Without it, servers run in this process.
const serverVariable = "PQ_TEST_NATS_SERVER"

// hub is a NATS server with a leaf node port that keeps its ports when it is started again.
type hub struct {
	t                    testing.TB
	file                 string // of its configuration
	clientPort, leafPort int
	server               *server.Server // if it runs in this process,
	process              *exec.Cmd      // or else
}

// newHub starts a server with a configuration, "leafnodes { ... }" without its address.
func newHub(t testing.TB, config, leafnodes string) *hub {
	t.Helper()
	h := &hub{
		t:          t,
		file:       filepath.Join(t.TempDir(), "nats.conf"),
		clientPort: harness.Port(t),
		leafPort:   harness.Port(t),
	}

	h.configure(config, leafnodes)
	h.start()
	t.Cleanup(h.stop)

	return h
}

// configure writes the configuration for the next start or reload. A login may take more than the
// usual 2 seconds, as it does on a busy machine.
func (h *hub) configure(config, leafnodes string) {
	h.t.Helper()
	leafnodes = strings.Replace(leafnodes, "tls {", "tls { timeout: 60,", 1)
	text := fmt.Sprintf("server_name: hub\nlisten: 127.0.0.1:%d\n%s\nleafnodes {\nlisten: "+
		"127.0.0.1:%d\nauthorization { timeout: 60 }\n%s\n}\n",
		h.clientPort, config, h.leafPort, leafnodes)
	must(h.t, os.WriteFile(h.file, []byte(text), 0o600))
}

func (h *hub) start() {
	h.t.Helper()
	if program := os.Getenv(serverVariable); program != "" {
		h.process = harness.Command(program, "-c", h.file)
		must(h.t, h.process.Start())
	} else {
		options, err := server.ProcessConfigFile(h.file)
		if err == nil {
			options.NoSigs, options.NoLog = true, true
			options.DisableShortFirstPing = true // an unread PONG would reset the connection
			h.server, err = server.NewServer(options)
		}
		must(h.t, err)

		h.server.Start()
	}

	for _, port := range []int{h.clientPort, h.leafPort} {
		testenv.Eventually(h.t, func() error {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				err = conn.Close()
			}

			return err
		})
	}
}

func (h *hub) stop() {
	if h.process != nil {
		_ = h.process.Process.Kill() // fails only if it has ended
		_ = h.process.Wait()         // that it was killed
		return
	}

	h.server.Shutdown()
	h.server.WaitForShutdown()
}

// reload makes the server take over another configuration.
func (h *hub) reload(config, leafnodes string) {
	h.t.Helper()
	h.configure(config, leafnodes)

	if h.process != nil {
		must(h.t, h.process.Process.Signal(syscall.SIGHUP))
	} else {
		must(h.t, h.server.Reload())
	}
}

func (h *hub) leafURL() string { return fmt.Sprintf("nats-leaf://127.0.0.1:%d", h.leafPort) }

func (h *hub) client(options ...nats.Option) *nats.Conn {
	h.t.Helper()
	options = append([]nats.Option{nats.Timeout(testenv.Patience)}, options...)
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", h.clientPort), options...)
	must(h.t, err)

	h.t.Cleanup(nc.Close)
	return nc
}

// running is a Conn that runs until the end of the test.
type running struct {
	*leaf.Conn
	t        testing.TB
	received chan *leaf.Message
	states   chan leaf.State
	gone     chan string
	end      func()
}

// run starts a connection; change may set what else it needs.
func run(t testing.TB, url string, change func(*leaf.Config)) *running {
	t.Helper()
	return runLimited(t, url, change, leaf.Limits{Login: testenv.Patience})
}

// runLimited is run with other limits than usual.
func runLimited(t testing.TB, url string, change func(*leaf.Config), limits leaf.Limits) *running {
	t.Helper()
	r := &running{
		t:        t,
		received: make(chan *leaf.Message, 1000),
		states:   make(chan leaf.State, 1000),
		gone:     make(chan string, 1000),
	}

	config := leaf.Config{
		URLs:         []string{url},
		Name:         "face",
		Receive:      func(m *leaf.Message) { r.received <- m },
		Changed:      func(s leaf.State) { r.states <- s },
		InterestGone: func(subject string) { r.gone <- subject },
	}

	if change != nil {
		change(&config)
	}

	conn, err := leaf.New(config)
	must(t, err)
	r.Conn = conn
	conn.Limit(limits)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})

	go func() {
		defer close(ended)
		if err := conn.Run(ctx); err != nil {
			t.Error(err)
		}
	}()

	r.end = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(r.end)
	return r
}

// next returns what comes next from a channel.
func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(testenv.Patience)
	defer timeout.Stop()

	select {
	case v := <-c:
		return v
	case <-timeout.C:
		t.Fatalf("no %T came", *new(T))
		panic("unreachable")
	}
}

// waitConnected waits until the connection is usable.
func (r *running) waitConnected() leaf.State {
	r.t.Helper()
	for {
		if s := next(r.t, r.states); s.Connected {
			return s
		}
	}
}

// wantFailure waits until the connection changes, and checks that it has failed with all of these
// words.
func (r *running) wantFailure(words ...string) {
	r.t.Helper()
	s := next(r.t, r.states)
	if s.Connected || s.Err == nil {
		r.t.Fatalf("%+v instead of an error", s)
	}

	for _, word := range words {
		if !strings.Contains(s.Err.Error(), word) {
			r.t.Fatalf("the error is %q, without %q", s.Err, word)
		}
	}
}

// waitForFailure waits until the connection fails with some words, whatever becomes of it before.
func (r *running) waitForFailure(words string) {
	r.t.Helper()
	for !strings.Contains(fmt.Sprint(next(r.t, r.states).Err), words) {
	}
}

func (r *running) publish(m *leaf.Message) {
	r.t.Helper()
	must(r.t, r.Publish(m))
}

func (r *running) flush() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	must(r.t, r.Flush(ctx))
}

// waitInterest waits until somebody subscribes to a subject, or nobody.
func (r *running) waitInterest(subject string, want bool) {
	r.t.Helper()
	testenv.Eventually(r.t, func() error {
		if r.HasInterest(subject) != want {
			return fmt.Errorf("interest in %s is not %t", subject, want)
		}
		return nil
	})
}

// flushClient makes sure that the server has taken what a client did.
func flushClient(t testing.TB, nc *nats.Conn) {
	t.Helper()
	must(t, nc.FlushTimeout(testenv.Patience))
}

func subscribe(t testing.TB, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	must(t, err)
	flushClient(t, nc)

	return sub
}

func nextMsg(t testing.TB, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(testenv.Patience)
	must(t, err)
	return m
}
